"""The shapes that the GPU kernels take; here without Triton, so that a plan can ask before anything is loaded."""

OLDEST = (8, 0)
"""Compute capability of a GPU: bfloat16 tensor cores and asynchronous copies (Ampere)."""

WIDEST = 8192
"""Hidden values of a row: one program of the norm holds all of them."""

WIDEST_HEAD = 128
"""Values of an attention head."""

SHARING_HEADS = 16
"""Query heads that share a key-value head: they are the rows of one tensor-core tile."""

END_TOKENS = 16
"""End-of-text tokens that the end of a step looks for."""

MATRIX = 2**31 - 1
"""Values of a matrix: kernels count them in int32."""
