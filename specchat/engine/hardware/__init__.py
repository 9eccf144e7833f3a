"""This machine: its GPU and memory, and how they fail."""
