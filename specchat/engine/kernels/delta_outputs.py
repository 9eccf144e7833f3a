"""Recurrent layers row by row after its states: norm of heads, z, and the log."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.delta_rows import RowText
from specchat.engine.kernels.delta_state import LoggedRows
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.norm import NormOf
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed

_SLOTS = tl.constexpr(STATE_SLOTS)


class LoggedEntries(NamedTuple):
    """Entries of the rows, the log that they go to, and the place of the first row, as in `finish`."""

    entries: Tensor
    log: Tensor
    stride: int
    start: Tensor


class NormWidth(NamedTuple):
    """Constants of a program: values that a norm is over, also as a power of two, and the column of the first gate.

    `groups` of heads share a norm, None: each has its own; `share` are the numbers of an entry that a program copies.
    """

    width: int
    padded: int
    first: int
    groups: int | None
    share: int


@triton.jit  # type: ignore[untyped-decorator]
def _finish(
    partials: PartialSums,
    made: tl.tensor,
    norm: NormOf,
    logged: LoggedEntries,
    out: tl.tensor,
    skip: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    WIDTH: tl.constexpr = shape.width
    # Not before the states are folded: the entries that those are made of may stand here.
    column = head * shape.share + tl.arange(0, shape.share)
    slot = (tl.load(logged.start) + row) % _SLOTS
    entry = tl.load(logged.entries + row * logged.stride + column, mask=column < logged.stride, other=0.0)
    tl.store(logged.log + slot * logged.stride + column, entry, mask=column < logged.stride)
    heads = tl.num_programs(1)
    weight = norm.weight
    if shape.groups is not None:
        heads = shape.groups
        weight += head * WIDTH
        if head >= shape.groups:
            return
    d = tl.arange(0, shape.padded)
    inside = d < WIDTH
    y = tl.load(made + (row * heads + head) * WIDTH + d, mask=inside, other=0.0)
    z = summed(partials.first + row * partials.row + shape.first + head * WIDTH + d, inside, partials)
    if shape.groups is not None:
        y = y * (z * tl.sigmoid(z))
    y = y * tl.rsqrt(tl.sum(y * y, 0) / WIDTH + norm.eps) * tl.load(weight + d, mask=inside, other=0.0)
    if shape.groups is None:
        y = y * (z * tl.sigmoid(z))
    tl.store(out + (row * heads + head) * WIDTH + d, y.to(out.dtype.element_ty), mask=inside)


def finish(
    partials: Tensor,
    values: Tensor,
    norm: tuple[Tensor, float],
    entries: LoggedRows,
    at: RowText,
    out: Tensor,
    rows: int,
    groups: int | None = None,
) -> None:
    """Compute out = norm(values) * silu(z), the norm over each head, and write the rows' entries to the log.

    With `groups` out = norm(values * silu(z)), the norm over each of so many groups of heads.

    Args:
        partials: float32 [splits, R, channels + values], whose last columns are z; with `groups` its first.
        values: float32 [R, value_heads, value_dim], of `step`.
        norm: weight float32 [value_dim], with `groups` [value_heads * value_dim], and eps.
        out: compute dtype [R, value_heads * value_dim], written.
    """
    value_heads, value_dim = values.shape[1:]
    width = value_heads // groups * value_dim if groups else value_dim
    padded = triton.next_power_of_2(width)
    first = 0 if groups else partials.shape[2] - value_heads * value_dim
    stride = entries.rows.stride
    share = triton.next_power_of_2(triton.cdiv(stride, value_heads))
    _finish[(rows, value_heads)](
        partial_sums(partials),
        values,
        NormOf(*norm),
        LoggedEntries(entries.rows.whole, entries.log.whole, stride, at.start),
        out,
        at.skip,
        NormWidth(width, padded, first, groups, share),
        num_warps=max(warps(stride, value_heads), min(8, padded // 512)),
        enable_fp_fusion=True,
    )


def warps(width: int, value_heads: int) -> int:
    """Warps of a program of `finish`: 16 numbers of an entry a thread."""
    share: int = triton.next_power_of_2(triton.cdiv(width, value_heads))
    return min(4, max(1, share // 512))
