"""The gate's activation between the two products of an MLP."""

from typing import Literal, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu", "relu2", "xielu"]
"""As in `recipe`, which kernels know nothing of."""


class Curve(NamedTuple):
    """The tensors of xIELU, one float32 each, as in `recipe.Gated.curve`."""

    p: Tensor
    n: Tensor
    beta: Tensor
    eps: Tensor


class GateShape(NamedTuple):
    """Constants of a program: partial sums, the activation, and whether nothing comes after the gate."""

    splits: int
    activation: Activation
    ungated: bool


COLUMNS = 512
"""Columns of one program."""
_COLUMNS = tl.constexpr(COLUMNS)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_mul(
    partials: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    curve: Curve | None,
    stride_split: tl.tensor,
    inner: tl.tensor,
    shape: tl.constexpr,
) -> None:
    SPLITS: tl.constexpr = shape.splits
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.program_id(1) * _COLUMNS + tl.arange(0, _COLUMNS)
    inside = column < inner
    first = partials + row * (inner if shape.ungated else 2 * inner) + column
    gate, up = tl.load(first, mask=inside, other=0.0), 1.0
    if not shape.ungated:
        up = tl.load(first + inner, mask=inside, other=0.0)
    for split in tl.static_range(1, SPLITS):
        gate += tl.load(first + split * stride_split, mask=inside, other=0.0)
        if not shape.ungated:
            up += tl.load(first + split * stride_split + inner, mask=inside, other=0.0)
    y = xielu(gate, curve) * up if shape.activation == "xielu" else gated(gate, up, shape.activation)
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
    elif ACTIVATION == "relu2":
        y = tl.where(gate < 0, 0.0, gate * gate) * up
    else:
        y = gate * tl.sigmoid(gate) * up
    return y


@triton.jit  # type: ignore[untyped-decorator]
def xielu(x: tl.tensor, curve: Curve) -> tl.tensor:
    """Return xIELU of x, float32."""
    beta = tl.load(curve.beta)
    below = (beta + softplus_of(curve.n)) * (tl.exp(tl.minimum(x, tl.load(curve.eps))) - 1 - x)
    return tl.where(x > 0, softplus_of(curve.p) * x * x, below) + beta * x


@triton.jit  # type: ignore[untyped-decorator]
def softplus_of(number: tl.tensor) -> tl.tensor:
    """Return log(1 + exp(a)) of the a at pointer `number`."""
    a = tl.load(number)
    return tl.maximum(a, 0.0) + tl.log(1 + tl.exp(-tl.abs(a)))


def gate_mul(
    partials: Tensor,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    activation: Activation = "silu",
    curve: Curve | None = None,
) -> None:
    """Compute out = activation(gate) * up (Shazeer 2020), or activation(gate) where nothing comes after the gate.

    gate is the first I columns of the summed product, up the last I.

    Args:
        partials: float32 [splits, R, 2 * I], or [splits, R, I] of gates alone, added in index order.
        out: compute dtype [R, I], written.
        skip: int32 [1]; non-zero skips the kernel.
        curve: of xIELU.
    """
    (splits, _, columns), inner = partials.shape, out.shape[1]
    _gate_mul[(rows, triton.cdiv(inner, COLUMNS))](
        partials,
        out,
        skip,
        curve,
        partials.stride(0),
        inner,
        GateShape(splits, activation, columns == inner),
        num_warps=4,
        enable_fp_fusion=True,
    )
