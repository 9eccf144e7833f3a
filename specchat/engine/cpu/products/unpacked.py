"""Products of many rows with weights in blocks.

A call unpacks a block of weights once for all its rows, into the level-1 cache; `tiles.block_tile` does so once for
each few. Every sum adds the same terms in the same order.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    I64,
    VECTOR,
    Address,
    Count,
    constant,
    load,
    map_vectors,
    primitive,
    splat,
    store,
)
from specchat.engine.cpu.products.block_form import BlockForm
from specchat.engine.cpu.products.blocks import BlockReader
from specchat.engine.cpu.products.byte_reader import ByteReader
from specchat.engine.cpu.products.tiles import add_products, add_scaled, fetch_group, zeros
from specchat.engine.formats.grids import GROUP
from specchat.engine.memory.vectors import LANES

FOR_MANY = 32
"""Most rows of a call: inputs stay in a level-2 cache meanwhile, sums in the level-1 cache beside a block."""
STEPS = 4
"""Inputs of one turn of the loop."""


@primitive
def stack_room(builder: Any, vectors: int) -> Address:
    """Address of memory for `vectors` vectors, a constant, on the caller's stack."""
    return builder.ptrtoint(cgutils.alloca_once(builder, VECTOR, vectors), I64)


@primitive
def stack_bytes(builder: Any, size: Count) -> Address:
    """Address of `size` bytes on the caller's stack until it returns: not to be used in a loop."""
    room = builder.alloca(ir.IntType(8), size)
    room.align = 4 * LANES
    return builder.ptrtoint(room, I64)


@primitive
def add_blocks(
    builder: Any,
    form: int,
    few: int,
    side: int,
    panels: int,
    rows: Count,
    x: Address,
    x_row: Count,
    matrix: Address,
    first: Count,
    totals: Address,
    room: Address,
    y: Address,
) -> None:
    """y = the product of `rows` rows of x with `panels` panels of a PRODUCT in blocks from panel `first` on.

    y is float32 [rows, panels, LANES]. `room` holds a block of the panels: float32 [block, panels, LANES]. The sums of
    `few` rows and `side` panels are in registers, those of the rows that remain with all panels at a time.
    """
    weights = BlockReader(builder, form, matrix, first)
    size = panels * LANES
    map_vectors(builder, builder.mul(rows, constant(size)), lambda: splat(0.0), y)
    tiles = builder.sdiv(rows, constant(few))
    done = builder.mul(tiles, constant(few))
    with cgutils.for_range(builder, weights.blocks) as outer:
        _unpack(builder, weights, panels, outer.index, room)
        factors = [weights.factors(p, outer.index) for p in range(panels)]
        begin = builder.mul(outer.index, weights.block)

        def add(row: Any, count: int, q: int, many: int, block: Any = outer.index, begin: Any = begin) -> None:
            values = builder.add(x, builder.mul(builder.add(builder.mul(x_row, row), begin), constant(4)))
            sums = _sums(builder, count, many, values, x_row, room, q, size, weights.block)
            of_row = builder.add(builder.mul(weights.blocks, row), block)
            out = builder.add(builder.mul(row, constant(size)), constant(LANES * q))
            at = builder.add(y, builder.mul(out, constant(4)))
            add_scaled(builder, weights, sums, factors[q : q + many], totals, of_row, at, constant(size))

        with cgutils.for_range(builder, tiles) as loop:
            row = builder.mul(loop.index, constant(few))
            for q in range(0, panels, side):
                add(row, few, q, side)
        with cgutils.for_range(builder, builder.sub(rows, done)) as loop:
            add(builder.add(done, loop.index), 1, 0, panels)


def _unpack(builder: Any, weights: BlockReader, panels: int, block: Any, room: Any) -> None:
    """room[k, p] = the value of the weight of input k of a block and panel p."""
    with cgutils.for_range(builder, weights.of_block) as loop:
        group = builder.add(builder.mul(block, weights.of_block), loop.index)
        for p in range(panels):
            loaded = weights.group(p, group)
            fetch_group(builder, weights, p + panels, group)
            for number in range(GROUP):
                k = builder.add(builder.mul(loop.index, constant(GROUP)), constant(number))
                place = builder.mul(builder.add(builder.mul(k, constant(panels)), constant(p)), constant(LANES))
                store(builder, weights.value(loaded, number, aligned=True), room, place)


def _sums(
    builder: Any, rows: int, panels: int, x: Any, x_row: Any, room: Any, first: int, size: int, block: Any
) -> list[list[Any]]:
    """Sums of the products of `rows` rows with a block of panels from `first` on."""
    sums = zeros(builder, rows, panels, LANES)
    with cgutils.for_range(builder, builder.sdiv(block, constant(STEPS))) as loop:
        for step in range(STEPS):
            k = builder.add(builder.mul(loop.index, constant(STEPS)), constant(step))
            before = builder.add(builder.mul(k, constant(size)), constant(LANES * first))
            values = [load(builder, room, builder.add(before, constant(LANES * p))) for p in range(panels)]
            add_products(builder, sums, x, x_row, k, values)
    return sums


def reader(builder: Any, form: int, matrix: Any, first: Any) -> BlockReader:
    """Code that reads the weights of a product, as its rows need them laid out."""
    return (ByteReader if BlockForm.of(form).rounded else BlockReader)(builder, form, matrix, first)


@primitive
def read_row(builder: Any, form: int, matrix: Address, row: Count, out: Address) -> None:
    """out = output `row` of a PRODUCT in blocks, float32 [inputs]."""
    lane = builder.srem(row, constant(LANES))
    weights = reader(builder, form, matrix, builder.sdiv(row, constant(LANES)))
    with cgutils.for_range(builder, weights.blocks) as outer:
        factors = weights.factors(0, outer.index)
        with cgutils.for_range(builder, weights.of_block) as loop:
            group = builder.add(builder.mul(outer.index, weights.of_block), loop.index)
            loaded = weights.group(0, group)
            for number in range(weights.turn):
                value = weights.scaled(weights.value(loaded, number, aligned=True), factors)
                k = builder.add(builder.mul(group, constant(weights.turn)), constant(number))
                store(builder, builder.extract_element(value, lane), out, k)
