"""A checkpoint's folder: its settings, and its tensors by name."""
