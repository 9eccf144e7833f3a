"""Counter-based noise: a pure function of (seed, position, stream, token).

SplitMix64 (Steele, Lea, Flood 2014): a stream starts at a mixed key, its i-th output is mix(key + i * GOLDEN). The
kernels make the same 64 bits on any device (kernels/noise.py) and round derived values to float32.
"""

import numpy as np
from numpy.typing import NDArray

from specchat.engine.kernels.streams import ACCEPT, BLOCK, FIRST, GOLDEN, LATER, RESIDUAL, SECOND, TOKEN

__all__ = ["ACCEPT", "BLOCK", "LATER", "RESIDUAL", "TOKEN", "WORD", "gumbel", "mix", "uniform", "words"]

WORD = (1 << 64) - 1
"""Mask of a 64-bit word."""


def words(seed: int, position: int, stream: int, tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 64 random bits for each of `tokens` at an absolute position."""
    state = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN) + np.uint64(_key(seed, position, stream))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(SECOND)
    state ^= state >> np.uint64(31)
    return state


def gumbel(seed: int, position: int, stream: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return standard Gumbel noise for each of `tokens` at an absolute position."""
    rest = ~words(seed, position, stream, tokens) >> np.uint64(12)
    # 52 bits and a half step: never 0 and never 1, so both logarithms are finite.
    return -np.log(-np.log((rest.astype(np.float64) + 0.5) * 2.0**-52))


def uniform(seed: int, position: int, stream: int, index: int = 0) -> float:
    """Return uniform `index` of a position, in (0, 1): the middle of one of 2**23 equal parts, exact in float32."""
    word = int(words(seed, position, stream, np.full(1, index, dtype=np.int64))[0])
    return ((word >> 41) + 0.5) * 2.0**-23


def _key(seed: int, position: int, stream: int) -> int:
    key = mix(seed + GOLDEN)
    key = mix(key + position * GOLDEN + 1)
    return mix(key + stream * GOLDEN + 2)


def mix(state: int) -> int:
    """Apply SplitMix64's output function."""
    state &= WORD
    state = ((state ^ (state >> 30)) * FIRST) & WORD
    state = ((state ^ (state >> 27)) * SECOND) & WORD
    return state ^ (state >> 31)
