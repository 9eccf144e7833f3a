"""Whole tunes, a file a kind: from the target's replies to the pair's place in models.toml, told in sentences."""
