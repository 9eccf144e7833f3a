"""Blocks of quantised weights; here without torch, so that a plan can be made where that is not to be loaded."""

BLOCK = 64
"""Weights that share a scale where we quantise."""
NESTED_BLOCK = 256
"""Scales that share a scale of their own, in double quantisation."""
