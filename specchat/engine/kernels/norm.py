"""The residual stream takes in a sub-layer's output and is normed for the next one, in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.limits import WIDEST


@triton.jit  # type: ignore[untyped-decorator]
def _add_rms_norm(
    residual: tl.tensor,
    partials: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    hidden: tl.tensor,
    eps: tl.tensor,
    SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    inside = column < hidden
    x = tl.load(residual + row * hidden + column, mask=inside, other=0.0)
    if SPLITS > 0:
        # A skipped sub-layer leaves the partial sums of an earlier step behind.
        left_out = 0
        if skip is not None:
            left_out = tl.load(skip)
        if left_out == 0:
            for split in tl.static_range(SPLITS):
                x += tl.load(partials + split * stride_split + row * hidden + column, mask=inside, other=0.0)
            tl.store(residual + row * hidden + column, x, mask=inside)
    scale = tl.rsqrt(tl.sum(x * x, 0) / hidden + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * hidden + column, (x * scale * w).to(out.dtype.element_ty), mask=inside)


def add_rms_norm(
    residual: Tensor, partials: Tensor | None, weight: Tensor, eps: float, out: Tensor, rows: int, skip: Tensor | None
) -> None:
    """residual += partials[0] + partials[1] + ..., in that order; out = RMSNorm(residual) (Zhang, Sennrich 2019).

    Args:
        residual: float32 [R, H], changed in place.
        partials: float32 [splits, R, H], the split sums of the product before; None adds nothing.
        weight: any float dtype [H].
        out: compute dtype [R, H], written: residual * rsqrt(mean(residual^2) + eps) * weight, in float32 until stored.
        skip: int32 [1]; where it is not 0 the partial sums are old and nothing is added; the norm is still computed.

    Raises:
        ModelError: H is over WIDEST.
    """
    hidden = residual.shape[1]
    if hidden > WIDEST:
        raise ModelError(f"the model is {hidden} wide; the GPU kernels take {WIDEST} at most: run it on the CPU")
    splits, stride = (0, 0) if partials is None else (partials.shape[0], partials.stride(0))
    columns = triton.next_power_of_2(hidden)
    _add_rms_norm[(rows,)](
        residual,
        partials,
        weight,
        out,
        skip,
        stride,
        hidden,
        eps,
        SPLITS=splits,
        COLUMNS=columns,
        num_warps=warps(columns),
        enable_fp_fusion=True,
    )


def warps(columns: int) -> int:
    """Warps for a row of `columns`: 16 numbers a thread where the row is wide enough."""
    return min(16, max(1, columns // 512))


def reference_add_rms_norm(
    residual: Tensor, partials: Tensor | None, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The residual stream after the sum, and its norm, in the precision of `residual`: both [rows, H]."""
    if partials is not None:
        for partial in partials:
            residual = residual + partial
    scale = torch.rsqrt(residual.square().mean(-1, keepdim=True) + eps)
    return residual, residual * scale * weight
