"""Keys and values of an int8 cache: int8 in blocks along the head, with a float32 scale each, in tensors of their own.

`model/kv_entries.py` tells the rounding, which has the same bits here where keys and values have.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_LEAST_PEAK, _LARGEST = tl.constexpr(1e-30), tl.constexpr(127.0)
_ROUNDING = tl.constexpr(12582912.0)
"""1.5 * 2**23: adding it rounds a small float32 to a whole number, to even where two are as near."""


class Scales(NamedTuple):
    """Scales of keys and of values, float32 [kv, capacity, blocks of a head]."""

    of_keys: Tensor
    of_values: Tensor


class KvEntries(NamedTuple):
    """KV entries of a layer: keys and values, compute dtype [kv, held, D]; with `scales` they are int8.

    With fewer entries than positions they are a ring: KV entry p is modulo their number.
    """

    keys: Tensor
    values: Tensor
    scales: Scales | None = None


class HeadBlocks(NamedTuple):
    """Constants of a head in an int8 cache: values of a block, and blocks of a head."""

    size: int
    of_head: int


@triton.jit  # type: ignore[untyped-decorator]
def put_int8(
    x: tl.tensor, entries: tl.tensor, scales: tl.tensor, entry: tl.tensor, written: tl.tensor, shape: tl.constexpr
) -> None:
    """Store x [padded], a key or value, as row number `entry` of `entries` and `scales`, if it is `written`."""
    COUNT: tl.constexpr = shape.padded // shape.blocks.size
    blocks = tl.reshape(x, (COUNT, shape.blocks.size))
    # What is no number counts as infinite, so that it leaves no numbers in its block.
    magnitudes = tl.where(blocks == blocks, tl.abs(blocks), float("inf"))
    scale = tl.div_rn(tl.maximum(tl.max(magnitudes, 1), _LEAST_PEAK), _LARGEST)
    rounded = tl.div_rn(blocks, tl.broadcast_to(scale[:, None], (COUNT, shape.blocks.size))) + _ROUNDING
    whole = (rounded - _ROUNDING).to(tl.int32).to(tl.int8)
    number = tl.arange(0, COUNT)
    d = number[:, None] * shape.blocks.size + tl.arange(0, shape.blocks.size)[None, :]
    tl.store(entries + entry * shape.dim + d, whole, mask=written & (d < shape.dim))
    inside = written & (number < shape.blocks.of_head)
    tl.store(scales + entry * shape.blocks.of_head + number, scale, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def load_entries(
    entries: tl.tensor,
    scales: tl.tensor,
    entry: tl.tensor,
    there: tl.tensor,
    query: tl.tensor,
    shape: tl.constexpr,
) -> tl.tensor:
    """Return the keys or values [KEYS, D] of rows number `entry` in the type of queries; zeros unless `there`.

    `scales` None: the cache has that type.
    """
    d = tl.arange(0, shape.padded)
    offset, valid = entry[:, None] * shape.dim + d[None, :], there[:, None] & (d[None, :] < shape.dim)
    if scales is None:
        found = tl.load(entries + offset, mask=valid, other=0.0)
    else:
        COUNT: tl.constexpr = shape.padded // shape.blocks.size
        number = tl.arange(0, COUNT)[None, :]
        of_block = entry[:, None] * shape.blocks.of_head + number
        scale = tl.load(scales + of_block, mask=there[:, None] & (number < shape.blocks.of_head), other=0.0)
        whole = tl.load(entries + offset, mask=valid, other=0).to(tl.float32)
        blocks = tl.reshape(whole, (shape.keys, COUNT, shape.blocks.size)) * scale[:, :, None]
        found = tl.reshape(blocks, (shape.keys, shape.padded)).to(query.dtype)
    return found


def blocks_of(dim: int, scales: Scales | None) -> HeadBlocks | None:
    """The blocks of heads of `dim` values with these scales, if any."""
    return None if scales is None else HeadBlocks(dim // scales.of_keys.shape[-1], scales.of_keys.shape[-1])


def dequantised(entries: Tensor, scales: Tensor) -> Tensor:
    """The keys or values float32 [..., dim] of an int8 cache."""
    blocks: Tensor = entries.unflatten(-1, (scales.shape[-1], -1)).float()
    return (blocks * scales[..., None]).flatten(-2)
