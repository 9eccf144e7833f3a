"""Tiles of rows for the tensor cores, on their way in and out of a product."""

import triton
import triton.language as tl

from specchat.engine.kernels.activation import gated
from specchat.engine.kernels.stored import WeightTensors


@triton.jit  # type: ignore[untyped-decorator]
def origin(source: tl.tensor, row: tl.tensor, first: tl.tensor, rows: tl.tensor) -> tl.tensor:
    """Rows of x for the rows of a tile, `first` + `row`: those in `source`; without it `row`, from `first` on."""
    if source is not None:
        # Loaded before the loop, in which they would delay what they lead to.
        row = tl.load(source + first + row, mask=first + row < rows, other=0)
    return row


@triton.jit  # type: ignore[untyped-decorator]
def load(
    x: tl.tensor,
    origin: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    weight: WeightTensors,
    k: tl.tensor,
    program: tl.constexpr,
) -> tl.tensor:
    """Inputs k .. k + BK - 1 of the rows `row` of a tile: TYPE [ROWS, BK]; `origin` are the rows of x.

    Beside weights in blocks they are in the order of `weight_tiles._by_threads`; `weight.order`, if any, has the place
    of each input of the weights in a row.
    """
    BK: tl.constexpr = program.inputs
    inputs = weight.inputs
    column = tl.arange(0, BK)
    if program.form.block > 0:
        column = column // 8 % 4 * (BK // 4) + column // 32 * 8 + column % 8
    there = (row < rows)[:, None]
    if not program.whole:
        there = there & (column < inputs - k)[None, :]
    if weight.order is not None:
        column = tl.load(weight.order + (k + column), mask=column < inputs - k, other=0)
        return tl.load(x + ((origin * inputs)[:, None] + column[None, :]), mask=there, other=0.0)
    where = (origin * inputs)[:, None] + column[None, :]
    if program.form.block > 0:
        # The compiler does not see through the division that 8 values are neighbours.
        where = tl.max_contiguous(tl.multiple_of(where, (1, 8)), (1, 8))
    return tl.load(x + (where + k), mask=there, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def store(
    out: tl.tensor, y: tl.tensor, row: tl.tensor, n: tl.tensor, rows: tl.tensor, outputs: tl.tensor, width: tl.tensor
) -> None:
    """Write y float32 [BN, ROWS] to the rows `row` of out, `width` apart, outputs `n`."""
    there = (row < rows)[None, :] & (n < outputs)[:, None]
    tl.store(out + row[None, :] * width + n[:, None], y, mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def store_activated(
    out: tl.tensor,
    y: tl.tensor,
    row: tl.tensor,
    block: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    program: tl.constexpr,
) -> None:
    """Write activation(gate) * up of y float32 [BN, ROWS], whose outputs are eight gates by eight values."""
    BN: tl.constexpr = program.outputs
    pairs = tl.reshape(y, (BN // 16, 2, 8, program.rows))
    gate, up = tl.split(tl.permute(pairs, (0, 2, 3, 1)))
    act = tl.reshape(gated(gate, up, program.activation), (BN // 2, program.rows))
    n = block * (BN // 2) + tl.arange(0, BN // 2)
    there = (row < rows)[None, :] & (n < outputs // 2)[:, None]
    tl.store(out + row[None, :] * (outputs // 2) + n[:, None], act.to(out.dtype.element_ty), mask=there)
