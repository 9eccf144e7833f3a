"""Block sizes of quantised weights, apart from torch, which plans do without."""

BLOCK = 64
"""Weights per scale in matrices quantised at load."""
MXFP4_BLOCK = 32
"""Weights per scale in MXFP4."""
NESTED_BLOCK = 256
"""Scales per nested scale, in double quantisation."""
