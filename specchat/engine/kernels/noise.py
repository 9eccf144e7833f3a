"""Counter-based noise on the device: the same (seed, position, stream, token) always gives the same number.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): the seed is the key, (token, position, stream, 0) the counter. So a
number depends on nothing else: not on how many rows a step has, nor on replay, nor on what was refused before.
"""

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

TOKEN, ACCEPT, RESIDUAL = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Streams: sampling a token, the uniform of a ratio test, sampling a residual."""


@triton.jit  # type: ignore[untyped-decorator]
def words(seed: tl.tensor, position: tl.tensor, stream: tl.constexpr, tokens: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Two uint32 for each of `tokens` int32 at an int32 position; `seed` int64."""
    zero = tl.zeros_like(tokens)
    high, low, _, _ = tl.philox(seed, tokens, zero + position, zero + stream, zero)
    return high, low


@triton.jit  # type: ignore[untyped-decorator]
def gumbel(seed: tl.tensor, position: tl.tensor, stream: tl.constexpr, tokens: tl.tensor) -> tl.tensor:
    """Standard Gumbel noise float32 for each of `tokens` int32 at an int32 position."""
    high, low = words(seed, position, stream, tokens)
    return gumbel_of(high, low)


@triton.jit  # type: ignore[untyped-decorator]
def gumbel_of(high: tl.tensor, low: tl.tensor) -> tl.tensor:
    """-log(E), E = -log(1 - w) exponential, w in (0, 1) of the 64 bits `high`, `low`.

    Below 1/2 w itself is rounded to float32, above it 1 - w is, so both ends keep 24 significant bits: the noise
    reaches from -3.8 to 45 and no logarithm sees 0 or 1.
    """
    near_one = high >= 0x80000000
    high = tl.where(near_one, high ^ 0xFFFFFFFF, high)
    low = tl.where(near_one, low ^ 0xFFFFFFFF, low)
    part = (high.to(tl.float32) * 4294967296.0 + low.to(tl.float32) + 0.5) * 5.421010862427522e-20
    # log(1 - part) loses the digits that 1 - part rounds away; their share is known exactly (Kahan's log1p).
    rest = 1.0 - part
    lost = 1.0 - rest
    small = tl.where(lost == 0.0, part, -tl.log(rest) * (part / tl.where(lost == 0.0, 1.0, lost)))
    return -tl.log(tl.where(near_one, -tl.log(part), small))


@triton.jit  # type: ignore[untyped-decorator]
def uniform(seed: tl.tensor, position: tl.tensor, stream: tl.constexpr) -> tl.tensor:
    """One float32 strictly inside (0, 1) for a position: the middle of one of 2**23 equal parts."""
    high, _ = words(seed, position, stream, tl.zeros_like(position))
    return ((high >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07


_MASK = np.uint64(0xFFFFFFFF)


def reference_words(seed: int, position: int, stream: int, tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The two words of `words`, bit for bit: uint64 [2, len(tokens)], each below 2**32."""
    c0 = tokens.astype(np.uint64)
    c1, c2, c3 = (np.full_like(c0, value) for value in (position, stream, 0))
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> np.uint64(32)) ^ c1 ^ k0, b & _MASK, (a >> np.uint64(32)) ^ c3 ^ k1, a & _MASK
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _MASK, (k1 + np.uint64(0xBB67AE85)) & _MASK
    return np.stack((c0, c1))


def reference_gumbel(seed: int, position: int, stream: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """`gumbel` without rounding, float64 [len(tokens)]; called like decoding/noise.py's."""
    high, low = reference_words(seed, position, stream, tokens)
    whole = (high << np.uint64(32)) | low
    near_one = whole >> np.uint64(63) == 1
    part = (np.where(near_one, ~whole, whole).astype(np.float64) + 0.5) * 2.0**-64
    exponential: NDArray[np.float64] = np.where(near_one, -np.log(part), -np.log1p(-part))
    return -np.log(exponential)


def reference_uniform(seed: int, position: int, stream: int) -> float:
    """The number of `uniform`, bit for bit; called like decoding/noise.py's."""
    high = int(reference_words(seed, position, stream, np.zeros(1, dtype=np.int64))[0, 0])
    return ((high >> 9) + 0.5) * 2.0**-23
