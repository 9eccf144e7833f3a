"""Counter-based noise: the same (seed, position, stream, token) always gives the same number, in any order.

SplitMix64 (Steele, Lea, Flood 2014): a stream starts at a mixed key, its i-th output is mix(key + i * GOLDEN).
"""

import numpy as np
from numpy.typing import NDArray

TOKEN, ACCEPT, RESIDUAL = 0, 1, 2
"""Streams: sampling a token, the uniform of a ratio test, sampling a residual."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def gumbel(seed: int, position: int, stream: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each of `tokens` at an absolute position."""
    return -np.log(-np.log(_uniform(_key(seed, position, stream), tokens)))


def uniform(seed: int, position: int, stream: int) -> float:
    """One number in (0, 1) for a position."""
    return float(_uniform(_key(seed, position, stream), np.zeros(1, dtype=np.int64))[0])


def _key(seed: int, position: int, stream: int) -> int:
    key = _mix(seed + _GOLDEN)
    key = _mix(key + position * _GOLDEN + 1)
    return _mix(key + stream * _GOLDEN + 2)


def _mix(state: int) -> int:
    state &= _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def _uniform(key: int, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    state = (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(key)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    # 52 bits and a half step: never 0 and never 1, so both logarithms are finite.
    return ((state >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
