"""What noise is made of, for the host and for the kernels: SplitMix64's constants, the streams of a position."""

GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

TOKEN, ACCEPT, RESIDUAL = 0, 1, 2
"""Streams: sampling a token, the uniform of a ratio test, sampling a residual."""
