"""Prefixes: entries of texts that a cache has read before, in main memory and on disk."""
