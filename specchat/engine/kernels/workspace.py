"""Partial sums between the two launches of attention, and the splits of the text that they are of."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.gpu_shapes import GROWS, SPLIT, WIDEST_HEAD

KEYS = 64
"""Keys of one pass of attention's inner loop at most."""
NUMBERS = 8192
"""Numbers of these keys at most, for there is little shared memory."""
REGISTERS = 255
"""All that a thread can have: shared memory leaves room for two programs a multiprocessor, however few they use."""
_GROWS = tl.constexpr(GROWS)
_DOUBLINGS = tl.constexpr(16)
"""More than a text of 2^31 positions has."""


class SplitSums(NamedTuple):
    """Sums over some keys as in `Workspace`, of some rows of heads: [N], [N] and [N, D]."""

    best: tl.tensor
    total: tl.tensor
    mixed: tl.tensor


@triton.jit  # type: ignore[untyped-decorator]
def no_sums(ROWS: tl.constexpr, DIM: tl.constexpr) -> SplitSums:
    """Return the sums over no keys."""
    best, total = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    return SplitSums(best, total, tl.zeros((ROWS, DIM), tl.float32))


class Workspace(NamedTuple):
    """Partial sums between the two launches, shared by all layers: one set for each (split, row, head).

    A layer of fewer or narrower heads uses the beginning of each, and one with a window counts splits from the first
    that a row of the pass sees.

    `best` float32 [splits, R, heads], the largest score times log2(e); `total` float32 [splits, R, heads], the sum of
    exp2(score - best); `mixed` float32 [splits, R, heads, D], the weighted values before division by `total`; `split`
    is the number of KV entries of the first splits.
    """

    best: Tensor
    total: Tensor
    mixed: Tensor
    split: int


def workspace(
    rows: int, heads: int, dim: int, splits: int, device: torch.device | str, split: int = SPLIT
) -> Workspace:
    """Allocate buffers for steps of up to `rows` rows; 4 * D + 8 bytes a set. `split` is a multiple of 64.

    Raises:
        ModelError: heads wider than WIDEST_HEAD.
    """
    if dim > WIDEST_HEAD:
        raise ModelError(
            f"the model's heads are {dim} wide; the GPU kernels take {WIDEST_HEAD} at most: run it on the CPU"
        )
    sets = (splits, rows, heads)
    best, total, mixed = (torch.empty(shape, device=device) for shape in (sets, sets, (*sets, dim)))
    return Workspace(best, total, mixed, split)


@triton.jit  # type: ignore[untyped-decorator]
def split_at(position: tl.tensor, window: tl.tensor, SPLIT: tl.constexpr) -> tl.tensor:
    """Return the number of the split that a position is in."""
    split = position // SPLIT
    if window is None:
        doubled = tl.zeros_like(split)
        for i in tl.static_range(_DOUBLINGS):
            doubled += (split >> i >= 2 * _GROWS).to(tl.int32)
        split = doubled * _GROWS + (split >> doubled)
    return split


@triton.jit  # type: ignore[untyped-decorator]
def of_split(split: tl.tensor, window: tl.tensor, SPLIT: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """Return the first position of a split, and the number of its positions."""
    first, size = split * SPLIT, tl.zeros_like(split) + SPLIT
    if window is None:
        doubled = tl.maximum(split // _GROWS - 1, 0)
        first, size = (split - doubled * _GROWS) * SPLIT << doubled, size << doubled
    return first, size


@triton.jit  # type: ignore[untyped-decorator]
def first_split(start: tl.tensor, window: tl.tensor, SPLIT: tl.constexpr) -> tl.tensor:
    """Return the split from which on partial sums are stored, of a pass whose rows follow `start` positions."""
    first = tl.zeros_like(start)
    if window is not None:
        first = tl.maximum(start + 1 - window, 0) // SPLIT
    return first


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
