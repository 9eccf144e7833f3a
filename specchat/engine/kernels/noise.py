"""Counter-based noise on the device: the same (seed, position, stream, token) always gives the same number.

SplitMix64, bit for bit as on the host (decoding/noise.py). A number depends on nothing else: not on the device, the
rows of a step, replay, or earlier rejections.
"""

import triton
import triton.language as tl

from specchat.engine.kernels import streams

TOKEN, ACCEPT, RESIDUAL = tl.constexpr(streams.TOKEN), tl.constexpr(streams.ACCEPT), tl.constexpr(streams.RESIDUAL)
BLOCK, LATER = tl.constexpr(streams.BLOCK), tl.constexpr(streams.LATER)
_GOLDEN = tl.constexpr(streams.GOLDEN)
_FIRST, _SECOND = tl.constexpr(streams.FIRST), tl.constexpr(streams.SECOND)


@triton.jit  # type: ignore[untyped-decorator]
def _mix(state: tl.tensor) -> tl.tensor:
    """SplitMix64's output function on uint64."""
    state = (state ^ (state >> 30)) * _FIRST
    state = (state ^ (state >> 27)) * _SECOND
    return state ^ (state >> 31)


@triton.jit  # type: ignore[untyped-decorator]
def words(seed: tl.tensor, position: tl.tensor, stream: tl.tensor, tokens: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """High and low uint32 of the 64 bits for each of `tokens` int32 at an int32 position; `seed` int64."""
    key = _mix(seed.to(tl.uint64) + _GOLDEN)
    key = _mix(key + position.to(tl.uint64) * _GOLDEN + 1)
    key = _mix(key + tl.full((), stream, tl.uint64) * _GOLDEN + 2)
    word = _mix((tokens.to(tl.uint64) + 1) * _GOLDEN + key)
    return (word >> 32).to(tl.uint32), word.to(tl.uint32)


@triton.jit  # type: ignore[untyped-decorator]
def gumbel(seed: tl.tensor, position: tl.tensor, stream: tl.tensor, tokens: tl.tensor) -> tl.tensor:
    """Standard Gumbel noise float32 for each of `tokens` int32 at an int32 position."""
    high, low = words(seed, position, stream, tokens)
    return gumbel_of(high, low)


@triton.jit  # type: ignore[untyped-decorator]
def gumbel_of(high: tl.tensor, low: tl.tensor) -> tl.tensor:
    """Gumbel noise -log(E), E = -log(1 - w) exponential, w in (0, 1) of the 64 bits `high`, `low`.

    Below 1/2 w itself is rounded to float32, above it 1 - w, so both ends keep 24 significant bits: the noise ranges
    from -3.8 to 45 and no logarithm gets 0 or 1.
    """
    near_one = high >= 0x80000000
    high = tl.where(near_one, high ^ 0xFFFFFFFF, high)
    low = tl.where(near_one, low ^ 0xFFFFFFFF, low)
    part = (high.to(tl.float32) * 4294967296.0 + low.to(tl.float32) + 0.5) * 5.421010862427522e-20
    # log(1 - part) loses digits to rounding in 1 - part; the correction is exact (Kahan's log1p).
    rest = 1.0 - part
    lost = 1.0 - rest
    small = tl.where(lost == 0.0, part, -tl.log(rest) * (part / tl.where(lost == 0.0, 1.0, lost)))
    return -tl.log(tl.where(near_one, -tl.log(part), small))


@triton.jit  # type: ignore[untyped-decorator]
def drafting(node: tl.tensor, by_blocks: tl.tensor) -> tl.tensor:
    """Stream of a step's next token after `node` draft tokens: TOKEN for the first one and outside block acceptance."""
    return tl.where((by_blocks != 0) & (node > 0), LATER + node, TOKEN)


@triton.jit  # type: ignore[untyped-decorator]
def uniform(seed: tl.tensor, position: tl.tensor, stream: tl.tensor, turn: tl.tensor) -> tl.tensor:
    """Uniform float32 strictly inside (0, 1) for a turn int32 at a position: the middle of one of 2**23 equal parts."""
    high, _ = words(seed, position, stream, turn)
    return ((high >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
