"""GGUF files as checkpoints of our own decoder."""
