"""Formats of quantised weights by name and size of block, apart from torch, which plans do without."""

BLOCK = 64
"""Weights per scale in matrices quantised at load."""
MXFP4 = "mxfp4"
"""`quant_method` of a checkpoint whose experts are stored in MXFP4."""
MXFP4_BLOCK = 32
"""Weights per scale in MXFP4."""
NESTED_BLOCK = 256
"""Scales per nested scale, in double quantisation."""
