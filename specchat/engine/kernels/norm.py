"""Addition of a sub-layer's output to the residual stream and the next norm, in one launch."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.gpu_shapes import WIDEST


class OtherNorm(NamedTuple):
    """One more norm of the same rows: weight, any float dtype [H], and out, compute dtype [R, H], written."""

    weight: Tensor
    eps: float
    out: Tensor


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _add_rms_norm(
    residual: tl.tensor,
    partials: tl.tensor,
    after: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    scalar: tl.tensor,
    earlier: tl.tensor,
    second: tl.tensor,
    second_out: tl.tensor,
    third: tl.tensor,
    third_out: tl.tensor,
    ahead: tl.tensor,
    rows: tl.tensor,
    stride_split: tl.tensor,
    hidden: tl.tensor,
    after_eps: tl.tensor,
    eps: tl.tensor,
    factor: tl.tensor,
    second_eps: tl.tensor,
    third_eps: tl.tensor,
    SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CENTRED: tl.constexpr,
    BIASED: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            fetch(ahead, row - rows)
            return
    column = tl.arange(0, COLUMNS)
    inside = column < hidden
    x = tl.load(residual + row * hidden + column, mask=inside, other=0.0)
    if SPLITS > 0:
        # A skipped sub-layer leaves stale partial sums.
        left_out = 0
        if skip is not None:
            left_out = tl.load(skip)
        if left_out == 0:
            added = x
            if after is not None:
                added = tl.zeros((COLUMNS,), tl.float32)
            for split in tl.static_range(SPLITS):
                part = tl.load(partials + split * stride_split + row * hidden + column, mask=inside, other=0.0)
                if after is None and factor is not None:
                    part = part * factor
                added += part
            if after is not None:
                added = normed(added, after + column, inside, hidden, after_eps)
                if factor is not None:
                    added = added * factor
                added += x
            x = stored(added, residual + row * hidden + column, inside, scalar)
        else:
            x = stored_unless_skipped(x, residual + row * hidden + column, inside, scalar, skip, earlier)
    if second is not None:
        write_norm(x, second, second_eps, second_out, row, column, inside, hidden)
    if third is not None:
        write_norm(x, third, third_eps, third_out, row, column, inside, hidden)
    if CENTRED:
        x = tl.where(inside, x - tl.sum(x, 0) / hidden, 0.0)
    write_norm(x, weight, eps, out, row, column, inside, hidden, BIASED)


@triton.jit  # type: ignore[untyped-decorator]
def normed(x: tl.tensor, weight: tl.tensor, inside: tl.tensor, hidden: tl.tensor, eps: tl.tensor) -> tl.tensor:
    """Return x * rsqrt(mean(x^2) + eps) * weight, with the pointers `weight` of the row's `hidden` columns."""
    scale = tl.rsqrt(tl.sum(x * x, 0) / hidden + eps)
    w = tl.load(weight, mask=inside, other=0.0).to(tl.float32)
    return x * scale * w


@triton.jit  # type: ignore[untyped-decorator]
def stored(x: tl.tensor, residual: tl.tensor, inside: tl.tensor, scalar: tl.tensor) -> tl.tensor:
    """Return x, times the `scalar` at the end of a layer if there is one, and write it to the pointers `residual`."""
    if scalar is not None:
        x = x * tl.load(scalar)
    tl.store(residual, x, mask=inside)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def stored_unless_skipped(
    x: tl.tensor, residual: tl.tensor, inside: tl.tensor, scalar: tl.tensor, skip: tl.tensor, earlier: tl.tensor
) -> tl.tensor:
    """Return x of a layer whose second half is left out: as `stored` unless the flag `earlier` leaves out the first."""
    if scalar is not None and skip is not None:  # noqa: SIM102
        if tl.load(earlier) == 0:
            x = stored(x, residual, inside, scalar)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def write_norm(
    x: tl.tensor,
    weight: tl.tensor,
    eps: tl.tensor,
    out: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    inside: tl.tensor,
    hidden: tl.tensor,
    BIASED: tl.constexpr = False,
) -> None:
    """Write the norm of x, or x itself without a `weight`, to `row` of `out` [R, hidden]."""
    if weight is not None:
        x = normed(x, weight + column, inside, hidden, eps)
        if BIASED:
            x += tl.load(weight + hidden + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * hidden + column, x.to(out.dtype.element_ty), mask=inside)


def add_rms_norm(
    residual: Tensor,
    partials: Tensor | None,
    weight: Tensor | None,
    eps: float,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    after: tuple[Tensor, float] | None = None,
    factor: float = 1.0,
    scalar: Tensor | None = None,
    earlier: Tensor | None = None,
    others: Sequence[OtherNorm] = (),
    ahead: Ahead | None = None,
    centred: bool = False,
) -> None:
    """Compute residual += factor * (partials[0] + partials[1] + ...), in that order; out = RMSNorm(residual).

    At the end of a layer the residual stream may then be multiplied by a `scalar`.

    RMSNorm(x) = x * rsqrt(mean(x^2) + eps) * weight, in float32 (Zhang and Sennrich 2019).

    Args:
        residual: float32 [R, H], changed in place.
        partials: float32 [splits, R, H], split sums of the previous product; None adds nothing.
        weight: any float dtype [H], or [2 * H] where a bias follows the weight; None copies the residual.
        out: compute dtype [R, H], written.
        skip: int32 [1]; non-zero marks stale partial sums: only the norm is computed.
        after: weight and eps of a norm of the summed product, before factor and addition.
        scalar: float32 [1], factor on the residual stream after the addition.
        earlier: int32 [1], given with `skip` and `scalar`: the flag of the layer's first half. With both flags set
            `scalar` is left out too.
        others: up to two more norms of the residual stream after all this.
        ahead: of the next product, to be asked for meanwhile.
        centred: the norm with `weight` is of the residual stream less its mean (Ba et al. 2016).

    Raises:
        ModelError: H is over WIDEST.
    """
    hidden = check_width(residual)
    splits, stride = (0, 0) if partials is None else (partials.shape[0], partials.stride(0))
    columns = triton.next_power_of_2(hidden)
    second, third = (*others, None, None)[:2]
    _add_rms_norm[(rows + (ahead.parts if ahead else 0),)](
        residual,
        partials,
        after and after[0],
        weight,
        out,
        skip,
        scalar,
        earlier,
        second and second.weight,
        second and second.out,
        third and third.weight,
        third and third.out,
        ahead and ahead.start,
        rows,
        stride,
        hidden,
        after and after[1],
        eps,
        # A factor of 1 compiles without the multiplication.
        None if factor == 1 else factor,
        second and second.eps,
        third and third.eps,
        SPLITS=splits,
        COLUMNS=columns,
        CENTRED=centred,
        BIASED=weight is not None and len(weight) > hidden,
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


def reference_add_rms_norm(
    residual: Tensor,
    partials: Tensor | None,
    weight: Tensor | None,
    eps: float,
    after: tuple[Tensor, float] | None = None,
    factor: float = 1.0,
    scalar: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Residual stream after the sum, and its norm, in the precision of `residual`: both [rows, H]."""

    if partials is not None:
        added = partials.to(residual).sum(0)
        residual = residual + factor * (added if after is None else reference_norm(added, *after))
    if scalar is not None:
        residual = residual * scalar.to(residual)
    return residual, residual if weight is None else reference_norm(residual, weight, eps)


def reference_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm of each row, in the precision of `x`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
