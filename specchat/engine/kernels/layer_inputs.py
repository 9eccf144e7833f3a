"""Inputs of each layer by token (Gemma 3n, Gemma team 2025), and the gate on them at the end of a layer."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.activation import Activation, gated
from specchat.engine.kernels.norm import NormOf
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed

COLUMNS = 256
"""Columns of one program of the gate."""


class InputSizes(NamedTuple):
    """Numbers of a launch: rows of the table, columns of a row, and the factor on it."""

    vocab: int
    width: int
    scale: float


@triton.jit  # type: ignore[untyped-decorator]
def _make_inputs(
    tokens: tl.tensor,
    table: tl.tensor,
    partials: PartialSums,
    norm: NormOf,
    made: tl.tensor,
    sizes: InputSizes,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    d = tl.arange(0, PADDED)
    inside = d < SIZE
    column = tl.program_id(1) * SIZE + d
    token = tl.minimum(tl.maximum(tl.load(tokens + row), 0), sizes.vocab - 1).to(tl.int64)
    # The table may lie in main memory: it is asked for first.
    of_token = tl.load(table + token * sizes.width + column, mask=inside, other=0.0).to(tl.float32)
    x = summed(partials.first + row * sizes.width + column, inside, partials)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / SIZE + norm.eps) * tl.load(norm.weight + d, mask=inside, other=0.0)
    tl.store(made + row * sizes.width + column, x + sizes.scale * of_token, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _gate_input(
    partials: PartialSums,
    inputs: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_row: tl.tensor,
    size: tl.tensor,
    COLUMNS: tl.constexpr,
    ACTIVATION: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < size
    gate = summed(partials.first + row * size + column, inside, partials)
    y = gated(gate, tl.load(inputs + row * stride_row + column, mask=inside, other=0.0), ACTIVATION)
    tl.store(out + row * size + column, y.to(out.dtype.element_ty), mask=inside)


def make_inputs(
    tokens: Tensor, table: Tensor, partials: Tensor, weight: Tensor, eps: float, scale: float, made: Tensor, rows: int
) -> None:
    """Write the inputs of all layers: the norm of a product, and the token's own row times `scale`.

    Args:
        tokens: int32 [R]; those beyond the table have its last row.
        table: any float dtype [vocab, layers * size], on the device or in main memory that it reads.
        partials: float32 [splits, R, layers * size], added in index order.
        weight: float32 [size], RMS norm of each layer's product.
        made: float32 [R, layers, size], written.
    """
    _, layers, size = made.shape
    _make_inputs[(rows, layers)](
        tokens,
        table,
        partial_sums(partials),
        NormOf(weight, eps),
        made,
        InputSizes(table.shape[0], layers * size, scale),
        SIZE=size,
        PADDED=triton.next_power_of_2(size),
        num_warps=1,
        enable_fp_fusion=True,
    )


def gate_input(
    partials: Tensor, inputs: Tensor, out: Tensor, rows: int, skip: Tensor | None, activation: Activation
) -> None:
    """Compute out = activation(gate) * inputs.

    Args:
        partials: float32 [splits, R, size], the gate, added in index order.
        inputs: float32 [R, size] of one layer, a view of `made` above.
        out: compute dtype [R, size], written.
        skip: int32 [1]; non-zero skips the kernel.
    """
    size = partials.shape[2]
    _gate_input[(rows, triton.cdiv(size, COLUMNS))](
        partial_sums(partials),
        inputs,
        out,
        skip,
        inputs.stride(0),
        size,
        COLUMNS=COLUMNS,
        ACTIVATION=activation,
        num_warps=2,
        enable_fp_fusion=True,
    )
