"""The second launch of attention: the partial sums of all splits, a sink beside them, and a gate on the output."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import paths
from specchat.engine.kernels.partial_sums import PartialSums, summed
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import SplitSums, Workspace, first_split, no_sums, padded, split_at

UNROLLED = 8
"""Partial sums whose loads are under way at a time."""
_UNROLLED = tl.constexpr(UNROLLED)


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


@triton.jit  # type: ignore[untyped-decorator]
def before_all(head: tl.tensor, extras: Extras, DIM: tl.constexpr) -> SplitSums:
    """Return the sums of heads [N] before all keys: those of a sink, if any."""
    sums = no_sums(head.shape[0], DIM)
    if extras.sinks is not None:
        # A value of zeros before all others, whose score is in powers of 2 as theirs are.
        sums = SplitSums(tl.load(extras.sinks + head) * 1.4426950408889634, sums.total + 1.0, sums.mixed)
    return sums  # type: ignore[no-any-return]


@triton.jit  # type: ignore[untyped-decorator]
def folded(sums: SplitSums, split: SplitSums) -> SplitSums:
    """Add the sums of one more split, rounded alike wherever it stands.

    A split in which nothing is seen changes no bit.
    """
    new = tl.maximum(sums.best, split.best)
    origin = tl.where(new == float("-inf"), 0.0, new)
    fade, weight = tl.exp2(sums.best - origin), tl.exp2(split.best - origin)
    seen = split.best > float("-inf")
    added = tl.fma(sums.mixed, fade[:, None], split.mixed * weight[:, None])
    total = tl.where(seen, tl.fma(sums.total, fade, split.total * weight), sums.total)
    return SplitSums(new, total, tl.where(seen[:, None], added, sums.mixed))


@triton.jit  # type: ignore[untyped-decorator]
def write_outputs(
    sums: SplitSums,
    row: tl.tensor,
    head: tl.tensor,
    used: tl.tensor,
    extras: Extras,
    out: tl.tensor,
    heads: tl.tensor,
    shape: tl.constexpr,
) -> None:
    """Divide, apply gates if there are any, and write the heads of rows that are `used`, [N]."""
    d = tl.arange(0, shape.padded)[None, :]
    y = sums.mixed / sums.total[:, None]
    if extras.gates is not None:
        of_gate = row * extras.gates.row + (2 * head + 1) * shape.dim
        gate = summed(extras.gates.first + of_gate[:, None] + d, used[:, None] & (d < shape.dim), extras.gates)
        y = y * tl.sigmoid(gate)
    of_out = ((row * heads + head) * shape.written)[:, None] + d
    tl.store(out + of_out, y.to(out.dtype.element_ty), mask=used[:, None] & (d < shape.written))


@triton.jit(do_not_specialize=["window"])  # type: ignore[untyped-decorator]
def _combine(
    partials: Workspace,
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
    start = tl.load(at.length)
    if at.tree is None:
        end = start + row + 1
    else:
        depth, _ = paths.unpacked(tl.load(at.tree + row))
        end = start + depth
    last = split_at(tl.minimum(end, sizes.capacity) - 1, window, shape.split)
    first, stored = tl.zeros_like(end), first_split(start, window, shape.split)
    if window is not None:
        first = tl.maximum(end - window, 0) // shape.split
    PADDED: tl.constexpr = shape.padded
    d = tl.arange(0, PADDED)[None, :]
    one = tl.arange(0, 1)
    sums = before_all(head + one, extras, PADDED)
    for chunk in range(first, last + 1, _UNROLLED):
        for i in tl.static_range(_UNROLLED):
            there = chunk + i <= last
            # Sums of long texts are more numbers than 32 bits count.
            of_set = tl.cast(chunk + i - stored, tl.int64) * sizes.stride_split + row * sizes.heads + head + one
            of_best = tl.load(partials.best + of_set, mask=there, other=float("-inf"))
            of_total = tl.load(partials.total + of_set, mask=there, other=0.0)
            where = partials.mixed + of_set[:, None] * shape.dim + d
            of_mixed = tl.load(where, mask=there & (d < shape.dim), other=0.0)
            sums = folded(sums, SplitSums(of_best, of_total, of_mixed))
    write_outputs(sums, row + one, head + one, one == 0, extras, out, sizes.heads, shape)


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
