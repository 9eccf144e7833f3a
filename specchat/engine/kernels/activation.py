"""The gate's activation between the two products of an MLP."""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import gelu, silu

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu"]
"""As in `recipe`, which kernels know nothing of."""

COLUMNS = 512
"""Columns of one program."""


@triton.jit  # type: ignore[untyped-decorator]
def _gate_mul(
    partials: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    inner: tl.tensor,
    SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ACTIVATION: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < inner
    first = partials + row * 2 * inner + column
    gate = tl.load(first, mask=inside, other=0.0)
    up = tl.load(first + inner, mask=inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        gate += tl.load(first + split * stride_split, mask=inside, other=0.0)
        up += tl.load(first + split * stride_split + inner, mask=inside, other=0.0)
    y = gated(gate, up, ACTIVATION)
    tl.store(out + row * inner + column, y.to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def gated(gate: tl.tensor, up: tl.tensor, ACTIVATION: tl.constexpr) -> tl.tensor:
    """Return activation(gate) * up, float32; of gpt-oss's gate both are clamped, and up is one more."""
    if ACTIVATION == "clamped_swiglu":
        # Comparisons leave what is no number as it is.
        gate, up = tl.where(gate > 7.0, 7.0, gate), tl.where(up > 7.0, 7.0, up)
        up = tl.where(up < -7.0, -7.0, up)
        y = gate * tl.sigmoid(1.702 * gate) * (up + 1.0)
    elif ACTIVATION == "gelu_tanh":
        # (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)).
        u = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        y = gate / (1 + tl.exp(-2 * u)) * up
    else:
        y = gate * tl.sigmoid(gate) * up
    return y


def gate_mul(partials: Tensor, out: Tensor, rows: int, skip: Tensor | None, activation: Activation = "silu") -> None:
    """Compute out = activation(gate) * up (Shazeer 2020).

    gate is the first I columns of the summed product, up the last I.

    Args:
        partials: float32 [splits, R, 2 * I], added in index order.
        out: compute dtype [R, I], written.
        skip: int32 [1]; non-zero skips the kernel.
    """
    splits, _, columns = partials.shape
    inner = columns // 2
    _gate_mul[(rows, triton.cdiv(inner, COLUMNS))](
        partials,
        out,
        skip,
        partials.stride(0),
        inner,
        SPLITS=splits,
        COLUMNS=COLUMNS,
        ACTIVATION=activation,
        num_warps=4,
        enable_fp_fusion=True,
    )


def reference_gate_mul(partials: Tensor, activation: Activation = "silu") -> Tensor:
    """Output of `gate_mul`, in the precision of `partials`: [rows, I]."""
    gate, up = partials.sum(0).chunk(2, -1)
    if activation == "clamped_swiglu":
        gate = gate.clamp(max=7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1)
    return (silu(gate) if activation == "silu" else gelu(gate, approximate="tanh")) * up
