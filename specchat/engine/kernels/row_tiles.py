"""Tiles of rows for the tensor cores, on their way in and out of a product."""

import triton
import triton.language as tl

from specchat.engine.kernels.activation import gated


@triton.jit  # type: ignore[untyped-decorator]
def origin(source: tl.tensor, first: tl.tensor, rows: tl.tensor, ROWS: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """Rows of x for the rows of a tile from `first` on, once for each chunk of a row if weights have 4 bits."""
    row = first + (tl.arange(0, 32 * ROWS) // 32 if BITS == 4 else tl.arange(0, ROWS))
    if source is not None:
        # Loaded before the loop, in which they would delay what they lead to.
        row = tl.load(source + row, mask=row < rows, other=0)
    return row


@triton.jit  # type: ignore[untyped-decorator]
def by_row(
    x: tl.tensor,
    origin: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    k: tl.tensor,
    inputs: tl.tensor,
    BK: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """Inputs k .. k + BK - 1 of the rows `row` of a tile: TYPE [ROWS, BK]; `origin` are the rows of x."""
    column = k + tl.arange(0, BK)
    there = (row < rows)[:, None]
    if not WHOLE:
        there = there & (column < inputs)[None, :]
    return tl.load(x + origin[:, None] * inputs + column[None, :], mask=there, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def chunks(
    x: tl.tensor,
    origin: tl.tensor,
    first: tl.tensor,
    rows: tl.tensor,
    k: tl.tensor,
    inputs: tl.tensor,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    WHOLE: tl.constexpr,
) -> tl.tensor:
    """Inputs k .. k + BK - 1 of the ROWS rows from `first` on: TYPE [ROWS, BK], in the order of `unpack.by_threads`.

    `origin` are the rows of x, as `origin` above gives them. They come 16 bytes at a time, to
    shared memory in the order that threads read them in: no two meet in a bank.
    """
    place = tl.arange(0, 32 * ROWS)
    row = first + place // 32
    column = k + (place // 8 % 4 * (BK // 4) + place % 8)[None, :] + (8 * tl.arange(0, BK // 32))[:, None]
    there = (row < rows)[None, :]
    if not WHOLE:
        there = there & (column < inputs)
    # The compiler does not see through the division that 8 values are neighbours.
    where = tl.max_contiguous(tl.multiple_of((origin * inputs)[None, :] + column, (1, 8)), (1, 8))
    values = tl.load(x + where, mask=there, other=0.0)
    values = tl.permute(tl.reshape(values, (BK // 32, ROWS, 4, 2, 4)), (1, 0, 3, 2, 4))
    return tl.reshape(values, (ROWS, BK))


@triton.jit  # type: ignore[untyped-decorator]
def store(
    out: tl.tensor,
    acc: tl.tensor,
    factor: tl.tensor,
    offset: tl.tensor,
    row: tl.tensor,
    n: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
) -> None:
    """Write acc * factor + offset, float32 [BN, ROWS], to the rows `row` of out, outputs `n`."""
    there = (row < rows)[None, :] & (n < outputs)[:, None]
    tl.store(out + row[None, :] * outputs + n[:, None], acc * factor[:, None] + offset[:, None], mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def store_activated(
    out: tl.tensor,
    acc: tl.tensor,
    factor: tl.tensor,
    offset: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    outputs: tl.tensor,
    BN: tl.constexpr,
    ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
) -> None:
    """Write activation(gate) * up of acc * factor + offset, whose outputs are eight gates by eight values."""
    pairs = tl.reshape(acc * factor[:, None] + offset[:, None], (BN // 16, 2, 8, ROWS))
    gate, up = tl.split(tl.permute(pairs, (0, 2, 3, 1)))
    y = tl.reshape(gated(gate, up, ACTIVATION), (BN // 2, ROWS))
    n = tl.program_id(0) * (BN // 2) + tl.arange(0, BN // 2)
    there = (row < rows)[None, :] & (n < outputs // 2)[:, None]
    tl.store(out + row[None, :] * (outputs // 2) + n[:, None], y.to(out.dtype.element_ty), mask=there)
