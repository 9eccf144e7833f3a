"""Places and checked contents of files: models.toml, config.toml and themes."""
