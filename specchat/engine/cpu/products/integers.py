"""Inner loop of the products of rows of bytes with weights in blocks: exact sums of whole numbers, then scales."""

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    WORDS,
    Address,
    Count,
    broadcast,
    constant,
    load,
    primitive,
    splat,
    store,
    words,
)
from specchat.engine.cpu.products.byte_reader import ByteReader
from specchat.engine.cpu.products.codebooks import QUAD
from specchat.engine.cpu.products.dots import WAYS, Dots, way
from specchat.engine.cpu.products.tiles import fetch_group
from specchat.engine.memory.vectors import LANES

LEAST_PADDED = 4
"""Least rows of a tile that takes one row less too: two tiles, of two rows and of one, take longer."""


@primitive
def multiply_rounded(
    builder: Any,
    form: int,
    few: int,
    rest: int,
    panels: int,
    rows: Count,
    codes: Address,
    scales: Address,
    totals: Address,
    matrix: Address,
    first: Count,
    y: Address,
    y_row: Count,
) -> None:
    """y[r, 16 p ...] = the products of `rows` rows of `round_rows` with `panels` panels of a PRODUCT from `first` on.

    y is float32, its rows `y_row` elements apart. `few` rows go together; with `rest` their number need not be a
    multiple of it. One row less than a tile has goes as a tile whose last row is there twice.
    """
    weights = ByteReader(builder, form, matrix, first)
    inputs, done = builder.mul(weights.blocks, weights.block), constant(0)
    scaled = builder.sdiv(weights.blocks, weights.of_scale)
    unread = builder.ptrtoint(cgutils.alloca_once(builder, VECTOR, panels), I64)
    while few:
        spare = int(rest and few >= LEAST_PADDED)
        tiles = builder.sdiv(builder.add(builder.sub(rows, done), constant(spare)), constant(few))
        with cgutils.for_range(builder, tiles) as loop:
            row = builder.add(done, builder.mul(loop.index, constant(few)))

            def of(address: Any, elements: Any, width: int, row: Any = row) -> Any:
                return builder.add(address, builder.mul(builder.mul(row, elements), constant(width)))

            numbers: list[Any] = [constant(r) for r in range(few)]
            out = of(y, y_row, 4)
            begins = [builder.mul(y_row, number) for number in numbers]
            if spare:
                last = builder.sub(builder.sub(rows, constant(1)), row)
                missing = builder.icmp_signed("<", last, numbers[-1])
                numbers[-1] = builder.select(missing, last, numbers[-1])
                begins[-1] = builder.select(missing, builder.sdiv(builder.sub(unread, out), constant(4)), begins[-1])
            starts = of(codes, inputs, 1), of(scales, scaled, 4), of(totals, weights.blocks, 4)
            _tile(builder, weights, panels, RoundedRows(*starts, inputs, numbers), out, begins)
        done = builder.add(done, builder.mul(tiles, constant(few)))
        few = few // 2 if rest else 0


class RoundedRows(NamedTuple):
    """Addresses of what `round_rows` made of rows of `inputs` values, and the `numbers` of those of a tile."""

    codes: Any
    scales: Any
    totals: Any
    inputs: Any
    numbers: list[Any]


def _tile(builder: Any, weights: ByteReader, panels: int, x: RoundedRows, y: Any, begins: list[Any]) -> None:
    """Multiply the rows of a tile with `panels` panels; results begin so many float32 after y."""
    dots, rows = WAYS[way()](builder, weights.signed), len(x.numbers)
    outs = [[builder.add(begin, constant(LANES * p)) for p in range(panels)] for begin in begins]
    for out in (out for row in outs for out in row):
        store(builder, splat(0.0), y, out)
    each = weights.of_scale
    scaled = builder.sdiv(weights.blocks, each)
    with cgutils.for_range(builder, scaled) as outer:
        sums, shifts = (_slots(builder, rows, panels) for _ in range(2))
        with cgutils.for_range(builder, each) as inner:
            block = builder.add(builder.mul(outer.index, each), inner.index)
            _add_block(builder, weights, dots, block, x, sums, shifts)
        factors = [weights.factors_of(p, outer.index) for p in range(panels)]
        for r, row in enumerate(outs):
            scale = load(builder, x.scales, builder.add(builder.mul(scaled, x.numbers[r]), outer.index), F32)
            for p, out in enumerate(row):
                total = builder.load(shifts[r][p]) if weights.by_supers else _total(builder, weights, x, r, outer.index)
                found = weights.add_rounded(builder.load(sums[r][p]), factors[p], total, scale, load(builder, y, out))
                store(builder, found, y, out)


def _slots(builder: Any, rows: int, panels: int) -> list[list[Any]]:
    """Slots of sums by row and panel: int32 [LANES], zeros."""
    found = [[cgutils.alloca_once(builder, WORDS) for _ in range(panels)] for _ in range(rows)]
    for slot in (slot for row in found for slot in row):
        builder.store(words(0), slot)
    return found


def _total(builder: Any, weights: ByteReader, x: RoundedRows, row: int, block: Any) -> Any:
    """The sum of the numbers of a row in a block."""
    return load(builder, x.totals, builder.add(builder.mul(weights.blocks, x.numbers[row]), block), I32)


def _add_block(
    builder: Any,
    weights: ByteReader,
    dots: Dots,
    block: Any,
    x: RoundedRows,
    sums: list[list[Any]],
    shifts: list[list[Any]],
) -> None:
    """Add the products of a block to `sums` and, of super-blocks with minimums, those of its total to `shifts`.

    Groups are added in a loop if there are more than two, as a compiler that sees many reads them all before it
    multiplies, for which there are too few registers.
    """
    rows, panels, depth = len(sums), len(sums[0]), dots.depth(weights.most)
    quads_of_turn = weights.turn // QUAD
    together = weights.together(depth)
    scales: list[Any] = [None] * panels
    minimums: list[Any] = [None] * panels
    if weights.by_supers:
        numbers = [weights.numbers(p, block) for p in range(panels)]
        minimums = [minimum for _, minimum in numbers]
        scales = [dots.scales(scale) for scale, _ in numbers]
    partial = [[dots.slots() for _ in range(panels)] for _ in range(rows)]

    def add(number: Any) -> None:
        """Add the products of a group of the block."""
        group = builder.add(builder.mul(block, weights.of_block), number)
        for p in range(panels):
            fetch_group(builder, weights, panels + p, group)
        of_panels = [weights.group(p, group) for p in range(panels)]
        for n, quads in enumerate(zip(*of_panels, strict=True)):
            place = builder.add(builder.mul(group, constant(weights.turn)), constant(QUAD * n))
            pieces = [dots.weights(*quad) for quad in quads]
            for r in range(rows):
                four = dots.inputs(x.codes, builder.add(builder.mul(x.inputs, x.numbers[r]), place))
                for slots, piece in zip(partial[r], pieces, strict=True):
                    dots.add(slots, piece, four)
            if depth < quads_of_turn and ((n + 1) % depth == 0 or n + 1 == quads_of_turn):
                _drain(builder, dots, partial, scales, sums)

    def drain() -> None:
        if depth >= quads_of_turn:
            _drain(builder, dots, partial, scales, sums)

    if weights.few_groups:
        for number in range(weights.few_groups):
            add(constant(number))
            if (number + 1) % max(1, depth // quads_of_turn) == 0 or number + 1 == weights.few_groups:
                drain()
    else:
        with cgutils.for_range(builder, builder.sdiv(weights.of_block, together)) as outer:
            with cgutils.for_range(builder, together) as loop:
                add(builder.add(builder.mul(outer.index, together), loop.index))
            drain()
    taken = weights.offset - dots.less * weights.signed
    for r, row in enumerate(sums):
        total = _total(builder, weights, x, r, block)
        for p, slot in enumerate(row):
            if taken:
                less = broadcast(builder, builder.mul(_brief(builder, weights, total), ir.Constant(I32, taken)))
                if weights.by_supers:
                    less = builder.mul(less, numbers[p][0])
                builder.store(builder.sub(builder.load(slot), less), slot)
            if minimums[p] is not None:
                added = builder.mul(broadcast(builder, _brief(builder, weights, total)), minimums[p])
                builder.store(builder.add(builder.load(shifts[r][p]), added), shifts[r][p])


def _brief(builder: Any, weights: ByteReader, total: Any) -> Any:
    """A total as a compiler multiplies it fastest: of a block of a super-block it has 16 bits."""
    return builder.sext(builder.trunc(total, ir.IntType(16)), I32) if weights.by_supers else total


def _drain(builder: Any, dots: Dots, partial: list[list[Any]], scales: list[Any], sums: list[list[Any]]) -> None:
    """Add partial sums, times whole scales if any, to those of a block, and begin them again."""
    for row, totals in zip(partial, sums, strict=True):
        for slots, scale, total in zip(row, scales, totals, strict=True):
            builder.store(builder.add(builder.load(total), dots.summed(slots, scale)), total)
