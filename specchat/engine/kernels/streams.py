"""Constants of noise, for the host and the kernels: SplitMix64's, and the streams of a position."""

GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

TOKEN, ACCEPT, RESIDUAL, BLOCK = 0, 1, 2, 3
"""Streams: sampling a token, the uniform of a ratio test, sampling a residual, the uniform of a block's test."""
LATER = 3
"""LATER + i: sampling the token that comes i tokens after the first of a block, i > 0.

All tokens of a block decide how many of them are accepted. Their noise must not draw again what follows at their
positions, and the position with the place in the block identifies the block.
"""
