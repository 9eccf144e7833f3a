"""Command lines and files that serve a pair by other engines; a file an engine, with its current flags."""
