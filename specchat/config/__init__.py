"""Where files are and what they say: models.toml, config.toml and themes, checked."""
