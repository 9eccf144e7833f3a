"""KV entries as caches on the processor hold them: float32 values, or int8 values with the scales of their blocks.

A block of n values x has the scale s = max(|x|, LEAST_PEAK) / 127, a float32, and the values round(x / s), to even
where two are as near. In float16 scales of small values would lose bits, and those of large ones would overflow.
An entry is made once, of its own token alone, and each later token reads it as it was made.
"""

import torch
from torch import Tensor

LEAST_PEAK = 1e-30
"""Least peak of a block, so that no scale is zero or subnormal."""
LARGEST = 127
"""Magnitude of the largest int8 value; -128 is not used."""


def row_size(size: int, block: int) -> int:
    """Elements of a row for a key or value of `size` values: float32, or int8 with scales of each `block`."""
    return size + 4 * size // block if block else size


def stored(x: Tensor, block: int) -> Tensor:
    """Return keys or values float32 [..., size] as rows of a cache; `block` 0 leaves them as they are.

    Returns:
        int8 [..., size + 4 * size // block]: the values, then the bytes of the scales.
    """
    if not block:
        return x
    blocks = x.unflatten(-1, (-1, block))
    scales = blocks.abs().amax(-1).clamp(min=LEAST_PEAK) / LARGEST
    values = (blocks / scales[..., None]).round().to(torch.int8)
    return torch.cat([values.flatten(-2), scales.view(torch.int8)], -1)


def loaded(rows: Tensor, size: int) -> Tensor:
    """Return the keys or values float32 [..., size] of rows of a cache."""
    if rows.dtype != torch.int8:
        return rows
    scales = rows[..., size:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    blocks: Tensor = rows[..., :size].unflatten(-1, (scales.shape[-1], -1)) * scales[..., None]
    return blocks.flatten(-2)
