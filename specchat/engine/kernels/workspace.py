"""Buffers between the two launches of attention."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.gpu_shapes import SPLIT, WIDEST_HEAD

KEYS = 64
"""Keys of one pass of attention's inner loop at most."""
NUMBERS = 8192
"""Numbers of these keys at most, for there is little shared memory."""
REGISTERS = 255
"""All that a thread can have: shared memory leaves room for two programs a multiprocessor, however few they use."""


class Workspace(NamedTuple):
    """Partial sums between the two launches, shared by all layers: one set for each (split, row, head).

    A layer of fewer or narrower heads uses the beginning of each.

    `best` float32 [splits, R, heads], the largest score times log2(e); `total` float32 [splits, R, heads], the sum of
    exp2(score - best); `mixed` float32 [splits, R, heads, D], the weighted values before division by `total`; `split`
    is the number of KV entries of a split.
    """

    best: Tensor
    total: Tensor
    mixed: Tensor
    split: int


def workspace(
    rows: int, heads: int, dim: int, capacity: int, device: torch.device | str, split: int = SPLIT
) -> Workspace:
    """Allocate buffers for steps of up to `rows` rows over a cache of `capacity` positions; 4 * D + 8 bytes a set.

    `split` is a multiple of 64.

    Raises:
        ModelError: heads wider than WIDEST_HEAD.
    """
    if dim > WIDEST_HEAD:
        raise ModelError(
            f"the model's heads are {dim} wide; the GPU kernels take {WIDEST_HEAD} at most: run it on the CPU"
        )
    sets = (triton.cdiv(capacity, split), rows, heads)
    best, total, mixed = (torch.empty(shape, device=device) for shape in (sets, sets, (*sets, dim)))
    return Workspace(best, total, mixed, split)


def padded(dim: int) -> int:
    """Columns of a head in a tile: a power of two, at least 16 for the tensor cores."""
    return max(16, int(triton.next_power_of_2(dim)))


def keys_at_once(dim: int) -> int:
    """Keys of one pass of attention's inner loop, for heads of `dim` values."""
    return min(KEYS, NUMBERS // padded(dim))


def registers(dim: int) -> int | None:
    """Registers that a thread of attention may have, for heads of `dim` values; None: what the assembler finds best.

    Left to itself it stops at 128 for the widest heads, and spills.
    """
    return REGISTERS if padded(dim) > 256 else None
