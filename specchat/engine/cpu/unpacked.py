"""Products of many rows with 4-bit weights on processors with 512-bit vectors.

A call unpacks a block of weights once for all its rows, into the level-1 cache; `tiles.four_bit_tile` does so once for
each few. Every sum adds the same terms in the same order.
"""

from typing import Any

from numba.core import cgutils

from specchat.engine.cpu.simd import WORDS, constant, constants_primitive, load, store, void_primitive
from specchat.engine.cpu.tiles import (
    NIBBLES,
    SHIFTED,
    add_products,
    add_scaled_sums,
    fetch,
    load_zeros,
    look_up,
    shift_to,
    subtract_zeros,
    zeros,
)
from specchat.engine.model.vectors import LANES

FOR_MANY = 32
"""Most rows of a call: inputs stay in a level-2 cache meanwhile, sums in the level-1 cache beside a block."""
STEPS = 4
"""Inputs of one turn of the loop."""


@constants_primitive
def unpack_block(typing: Any, panels: Any, w: Any, groups: Any, code: Any, of_block: Any, out: Any) -> Any:
    """out[k, p] = code[w[p, k]] for the inputs k of a block: `of_block` int32 of each panel, which `groups` follow.

    `out` is float32 [block, panels, LANES]; w, `code` and the constant `panels` are as in `tiles.four_bit_tile`.
    """
    wide = panels.literal_value

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        w, groups, code, of_block, out = arguments[1:]
        table = load(builder, code, constant(0))
        with cgutils.for_range(builder, of_block) as loop:
            for p in range(wide):
                place = builder.add(builder.mul(groups, constant(p)), loop.index)
                word = load(builder, w, builder.mul(place, constant(LANES)), WORDS)
                further = builder.add(place, builder.mul(groups, constant(wide)))
                fetch(builder, w, [builder.mul(further, constant(LANES))], 4)
                for nibble in range(NIBBLES):
                    k = builder.add(builder.mul(loop.index, constant(NIBBLES)), constant(nibble))
                    at = builder.mul(builder.add(builder.mul(k, constant(wide)), constant(p)), constant(LANES))
                    store(builder, look_up(builder, code, table, shift_to(builder, word, nibble)), out, at)

    return void_primitive([panels], 5, emit)


@constants_primitive
def add_block(
    typing: Any,
    form: Any,
    rows: Any,
    panels: Any,
    x: Any,
    x_row: Any,
    w: Any,
    scales: Any,
    zero_points: Any,
    totals: Any,
    blocks: Any,
    block: Any,
    y: Any,
) -> Any:
    """y[r, p] += scales[p] * the sum over a block's k of x[r, k] (w[k, p] - zero[p]), w as `unpack_block` leaves it.

    y is float32 [rows, panels, LANES], x float32, its rows `x_row` elements apart; the scales of the next panel are
    `blocks` vectors further, and its zeros. `totals` begin with this block's. `form`, FOUR_BIT or SHIFTED, `rows` and
    `panels` are constants.
    """
    count, wide, shifted = rows.literal_value, panels.literal_value, form.literal_value == SHIFTED

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, x_row, w, scales, zero_points, totals, blocks, block, y = arguments[3:]
        sums = zeros(builder, count, wide, LANES)
        with cgutils.for_range(builder, builder.sdiv(block, constant(STEPS))) as loop:
            for step in range(STEPS):
                k = builder.add(builder.mul(loop.index, constant(STEPS)), constant(step))
                first = builder.mul(k, constant(wide * LANES))
                weights = [load(builder, w, builder.add(first, constant(LANES * p))) for p in range(wide)]
                add_products(builder, sums, x, x_row, k, weights)
        of_panel = [builder.mul(blocks, constant(LANES * p)) for p in range(wide)]
        if shifted:
            own = [load_zeros(builder, zero_points, at) for at in of_panel]
            subtract_zeros(builder, sums, own, totals, blocks, constant(0))
        factors = [load(builder, scales, at) for at in of_panel]
        add_scaled_sums(builder, sums, factors, y, constant(wide * LANES))

    return void_primitive([form, rows, panels], 9, emit)
