"""The second launch of attention: the partial sums of all splits, a sink beside them, and a gate on the output."""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import paths
from specchat.engine.kernels.partial_sums import summed
from specchat.engine.kernels.workspace import Workspace, padded

CHUNK = 8
"""Partial sums that are added at a time."""


@triton.jit(do_not_specialize=["window"])  # type: ignore[untyped-decorator]
def _combine(
    best_in: tl.tensor,
    total_in: tl.tensor,
    mixed_in: tl.tensor,
    length: tl.tensor,
    tree: tl.tensor,
    skip: tl.tensor,
    sinks: tl.tensor,
    gates: tl.tensor,
    out: tl.tensor,
    heads: tl.tensor,
    capacity: tl.tensor,
    stride_split: tl.tensor,
    window: tl.tensor,
    gates_split: tl.tensor,
    gates_row: tl.tensor,
    DIM: tl.constexpr,
    VALUE: tl.constexpr,
    PADDED: tl.constexpr,
    SPLIT: tl.constexpr,
    CHUNK: tl.constexpr,
    GATE_SPLITS: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    end = tl.load(length)
    if tree is None:
        end += row + 1
    else:
        depth, _ = paths.unpacked(tl.load(tree + row))
        end += depth
    splits = tl.cdiv(tl.minimum(end, capacity), SPLIT)
    first = 0
    if window is not None:
        first = tl.maximum(end - window, 0) // SPLIT
    d = tl.arange(0, PADDED)
    if sinks is not None:
        # A value of zeros before all others, whose score is in powers of 2 as theirs are.
        best = tl.load(sinks + head) * 1.4426950408889634
        total = tl.full((), 1.0, tl.float32)
    else:
        best = tl.full((), float("-inf"), tl.float32)
        total = tl.full((), 0.0, tl.float32)
    mixed = tl.zeros((PADDED,), tl.float32)
    for chunk in range(first, splits, CHUNK):
        split = chunk + tl.arange(0, CHUNK)
        mine = split < splits
        place = split * stride_split + row * heads + head
        bests = tl.load(best_in + place, mask=mine, other=float("-inf"))
        new = tl.maximum(best, tl.max(bests, 0))
        weight = tl.exp2(bests - new)
        fade = tl.exp2(best - new)
        totals = tl.load(total_in + place, mask=mine, other=0.0)
        parts = tl.load(
            mixed_in + place[:, None] * DIM + d[None, :], mask=mine[:, None] & (d[None, :] < DIM), other=0.0
        )
        total = total * fade + tl.sum(totals * weight, 0)
        mixed = mixed * fade + tl.sum(parts * weight[:, None], 0)
        best = new
    y = mixed / total
    if gates is not None:
        gate = summed(gates + row * gates_row + (2 * head + 1) * DIM + d, d < DIM, gates_split, GATE_SPLITS)
        y = y * tl.sigmoid(gate)
    tl.store(out + (row * heads + head) * VALUE + d, y.to(out.dtype.element_ty), mask=d < VALUE)


def combine(
    workspace: Workspace,
    length: Tensor,
    tree: Tensor | None,
    skip: Tensor | None,
    out: Tensor,
    rows: int,
    heads: int,
    dim: int,
    capacity: int,
    window: int,
    sinks: Tensor | None,
    gates: Tensor | None,
) -> None:
    """Add the partial sums of each row and head in index order; the arguments are those of `attention.attend`.

    Args:
        out: compute dtype [R, heads * value], written; `value` are as many of a value's `dim` numbers.
        capacity: positions of the cache.
    """
    gates_split, gates_row = (None, None) if gates is None else gates.stride()[:2]
    _combine[(rows, heads)](
        workspace.best,
        workspace.total,
        workspace.mixed,
        length,
        tree,
        skip,
        sinks,
        gates,
        out,
        heads,
        capacity,
        workspace.best.stride(0),
        window or None,
        gates_split,
        gates_row,
        DIM=dim,
        VALUE=out.shape[1] // heads,
        PADDED=padded(dim),
        SPLIT=workspace.split,
        CHUNK=CHUNK,
        GATE_SPLITS=0 if gates is None else gates.shape[0],
        num_warps=1,
        enable_fp_fusion=True,
    )
