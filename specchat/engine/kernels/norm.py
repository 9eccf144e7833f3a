"""Addition of a sub-layer's output to the residual stream and the next norm, in one launch."""

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.gpu_shapes import WIDEST
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums


class NormOf(NamedTuple):
    """Weight of an RMS norm, any float dtype [H], and eps."""

    weight: Tensor
    eps: float


class OtherNorm(NamedTuple):
    """A norm of the residual stream: weight, any float dtype [H], and out, compute dtype [R, H], written.

    Without a weight the stream is copied. A bias may follow the weight, [2 * H].
    """

    weight: Tensor | None
    eps: float
    out: Tensor


class Others(NamedTuple):
    """Up to two more norms."""

    second: OtherNorm | None = None
    third: OtherNorm | None = None


class NormShape(NamedTuple):
    """Constants of a program: columns, a power of two, whether the norm is centred, and whether a bias follows it."""

    columns: int
    centred: bool
    biased: bool


class ResidualUpdate(NamedTuple):
    """An update of the residual stream, which may be multiplied by a `scalar` at the end of a layer.

    Attributes:
        residual: float32 [R, H], changed in place.
        after: norm of the summed product, before factor and addition.
        factor: on what is added; None: 1, without a multiplication.
        skip: int32 [1]; non-zero marks stale sums: nothing is added.
        scalar: float32 [1], factor on the residual stream after the addition.
        earlier: int32 [1], given with `skip` and `scalar`: the flag of the layer's first half. With both flags set
            `scalar` is left out too.
    """

    residual: Tensor
    after: NormOf | None = None
    factor: float | None = None
    skip: Tensor | None = None
    scalar: Tensor | None = None
    earlier: Tensor | None = None


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _add_rms_norm(
    update: ResidualUpdate,
    partials: PartialSums | None,
    norm: OtherNorm,
    others: Others,
    ahead: tl.tensor,
    rows: tl.tensor,
    hidden: tl.tensor,
    shape: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            fetch(ahead, row - rows)
            return
    column = tl.arange(0, shape.columns)
    inside = column < hidden
    x = tl.load(update.residual + row * hidden + column, mask=inside, other=0.0)
    if partials is not None:
        # A skipped sub-layer leaves stale partial sums.
        left_out = 0
        if update.skip is not None:
            left_out = tl.load(update.skip)
        if left_out == 0:
            added = _summed(x, update, partials, row, column, inside, hidden)
            x = stored(added, update, row * hidden + column, inside)
        else:
            x = stored_unless_skipped(x, update, row * hidden + column, inside)
    if others.second is not None:
        write_norm(x, others.second, row, column, inside, hidden)
    if others.third is not None:
        write_norm(x, others.third, row, column, inside, hidden)
    if shape.centred:
        x = tl.where(inside, x - tl.sum(x, 0) / hidden, 0.0)
    write_norm(x, norm, row, column, inside, hidden, shape.biased)


@triton.jit  # type: ignore[untyped-decorator]
def _summed(
    x: tl.tensor,
    update: ResidualUpdate,
    partials: PartialSums,
    row: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    hidden: tl.tensor,
) -> tl.tensor:
    """Return the residual stream x with the sum of `partials`, each split added in turn unless a norm comes first."""
    added = x
    if update.after is not None:
        added = tl.zeros_like(x)
    for split in tl.static_range(partials.splits):
        where = partials.first + split * partials.split + row * hidden + column
        part = tl.load(where, mask=inside, other=0.0)
        if update.after is None and update.factor is not None:
            part = part * update.factor
        added += part
    if update.after is not None:
        added = normed(added, update.after, column, inside, hidden)
        if update.factor is not None:
            added = added * update.factor
        added += x
    return added


@triton.jit  # type: ignore[untyped-decorator]
def normed(x: tl.tensor, norm: NormOf, column: tl.tensor, inside: tl.tensor, hidden: tl.tensor) -> tl.tensor:
    """Return x * rsqrt(mean(x^2) + eps) * weight, of a row of `hidden` columns."""
    scale = tl.rsqrt(tl.sum(x * x, 0) / hidden + norm.eps)
    w = tl.load(norm.weight + column, mask=inside, other=0.0).to(tl.float32)
    return x * scale * w


@triton.jit  # type: ignore[untyped-decorator]
def stored(x: tl.tensor, update: ResidualUpdate, offsets: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Return x, times the factor at the end of a layer if there is one, and write it to the `offsets` of the stream."""
    if update.scalar is not None:
        x = x * tl.load(update.scalar)
    tl.store(update.residual + offsets, x, mask=inside)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def stored_unless_skipped(x: tl.tensor, update: ResidualUpdate, offsets: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Return x of a layer whose second half is left out: as `stored` unless the flag `earlier` leaves out the first."""
    if update.scalar is not None and update.skip is not None:  # noqa: SIM102
        if tl.load(update.earlier) == 0:
            x = stored(x, update, offsets, inside)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def write_norm(
    x: tl.tensor,
    norm: OtherNorm,
    row: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    hidden: tl.tensor,
    BIASED: tl.constexpr = False,
) -> None:
    """Write the norm of x, or x itself without a weight, to `row` of `norm.out` [R, hidden]."""
    if norm.weight is not None:
        x = normed(x, norm, column, inside, hidden)
        if BIASED:
            x += tl.load(norm.weight + hidden + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(norm.out + row * hidden + column, x, mask=inside)


def add_rms_norm(
    update: ResidualUpdate,
    partials: Tensor | None,
    norm: OtherNorm,
    rows: int,
    others: Sequence[OtherNorm] = (),
    ahead: Ahead | None = None,
    centred: bool = False,
) -> None:
    """Compute residual += factor * (partials[0] + partials[1] + ...), in that order; out = RMSNorm(residual).

    RMSNorm(x) = x * rsqrt(mean(x^2) + eps) * weight, in float32 (Zhang and Sennrich 2019).

    Args:
        partials: float32 [splits, R, H], split sums of the previous product; None adds nothing.
        others: up to two more norms of the residual stream after all this.
        ahead: of the next product, to be asked for meanwhile.
        centred: `norm` is of the residual stream less its mean (Ba et al. 2016).

    Raises:
        ModelError: H is over WIDEST.
    """
    hidden, weight = check_width(update.residual), norm.weight
    columns = triton.next_power_of_2(hidden)
    _add_rms_norm[(rows + (ahead.parts if ahead else 0),)](
        update,
        None if partials is None else partial_sums(partials),
        norm,
        Others(*others),
        ahead and ahead.start,
        rows,
        hidden,
        NormShape(columns, centred, weight is not None and len(weight) > hidden),
        num_warps=warps(columns),
        enable_fp_fusion=True,
    )


def check_width(residual: Tensor) -> int:
    """Return the values of a row, which one program holds.

    Raises:
        ModelError: they are over WIDEST.
    """
    hidden = residual.shape[1]
    if hidden > WIDEST:
        raise ModelError(f"the model is {hidden} wide; the GPU kernels take {WIDEST} at most: run it on the CPU")
    return hidden


def warps(columns: int) -> int:
    """Warps for a row of `columns`: 16 numbers a thread if the row is wide enough."""
    return min(16, max(1, columns // 512))
