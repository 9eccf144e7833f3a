"""The second launch of attention: the partial sums of all splits, a sink beside them, and a gate on the output."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import paths
from specchat.engine.kernels.partial_sums import PartialSums, summed
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import Workspace, padded

CHUNK = 8
"""Partial sums that are added at a time."""
_CHUNK = tl.constexpr(CHUNK)


class Extras(NamedTuple):
    """A score beside those of keys, and partial sums of gates on the output: arguments of `attention.attend`."""

    sinks: Tensor | None
    gates: PartialSums | None


class CombineSizes(NamedTuple):
    """Numbers of a launch."""

    heads: int
    capacity: int
    stride_split: int


class CombineShape(NamedTuple):
    """Constants of a program: columns of a head, those that are written, and keys of a split."""

    dim: int
    written: int
    padded: int
    split: int


@triton.jit(do_not_specialize=["window"])  # type: ignore[untyped-decorator]
def _combine(
    sums: Workspace,
    at: RowPlaces,
    extras: Extras,
    out: tl.tensor,
    sizes: CombineSizes,
    window: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    end = tl.load(at.length)
    if at.tree is None:
        end += row + 1
    else:
        depth, _ = paths.unpacked(tl.load(at.tree + row))
        end += depth
    splits = tl.cdiv(tl.minimum(end, sizes.capacity), shape.split)
    first = 0
    if window is not None:
        first = tl.maximum(end - window, 0) // shape.split
    PADDED: tl.constexpr = shape.padded
    d = tl.arange(0, PADDED)
    if extras.sinks is not None:
        # A value of zeros before all others, whose score is in powers of 2 as theirs are.
        best = tl.load(extras.sinks + head) * 1.4426950408889634
        total = tl.full((), 1.0, tl.float32)
    else:
        best = tl.full((), float("-inf"), tl.float32)
        total = tl.full((), 0.0, tl.float32)
    mixed = tl.zeros((PADDED,), tl.float32)
    for chunk in range(first, splits, _CHUNK):
        mine = chunk + tl.arange(0, _CHUNK) < splits
        # Sums of long texts are more numbers than 32 bits count.
        of_chunk = tl.cast(chunk, tl.int64) * sizes.stride_split
        of_head = tl.arange(0, _CHUNK) * sizes.stride_split + row * sizes.heads + head
        bests = tl.load(sums.best + of_chunk + of_head, mask=mine, other=float("-inf"))
        new = tl.maximum(best, tl.max(bests, 0))
        weight = tl.exp2(bests - new)
        fade = tl.exp2(best - new)
        totals = tl.load(sums.total + of_chunk + of_head, mask=mine, other=0.0)
        where = sums.mixed + of_chunk * shape.dim + of_head[:, None] * shape.dim + d[None, :]
        parts = tl.load(where, mask=mine[:, None] & (d[None, :] < shape.dim), other=0.0)
        total = total * fade + tl.sum(totals * weight, 0)
        mixed = mixed * fade + tl.sum(parts * weight[:, None], 0)
        best = new
    y = mixed / total
    if extras.gates is not None:
        of_gate = extras.gates.first + row * extras.gates.row + (2 * head + 1) * shape.dim
        gate = summed(of_gate + d, d < shape.dim, extras.gates)
        y = y * tl.sigmoid(gate)
    tl.store(out + (row * sizes.heads + head) * shape.written + d, y.to(out.dtype.element_ty), mask=d < shape.written)


def combine(
    workspace: Workspace,
    at: RowPlaces,
    out: Tensor,
    rows: int,
    shape: tuple[int, int],
    capacity: int,
    window: int,
    extras: Extras,
) -> None:
    """Add the partial sums of each row and head in index order; the arguments are those of `attention.attend`.

    Args:
        out: compute dtype [R, heads * value], written; `value` are as many of a value's D numbers.
        shape: heads, and D.
        capacity: positions of the cache.
    """
    heads, dim = shape
    _combine[(rows, heads)](
        workspace,
        at,
        extras,
        out,
        CombineSizes(heads, capacity, workspace.best.stride(0)),
        window or None,
        CombineShape(dim, out.shape[1] // heads, padded(dim), workspace.split),
        num_warps=1,
        enable_fp_fusion=True,
    )
