"""Products of many rows with 4-bit weights on processors with 512-bit vectors.

A call unpacks a block of weights once for all its rows, into the level-1 cache; `tiles.four_bit_tile` does so once for
each few. Every sum adds the same terms in the same order.
"""

from typing import Any

from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import WORDS, Address, Count, constant, load, primitive, store
from specchat.engine.cpu.products.tiles import (
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
from specchat.engine.memory.vectors import LANES

FOR_MANY = 32
"""Most rows of a call: inputs stay in a level-2 cache meanwhile, sums in the level-1 cache beside a block."""
STEPS = 4
"""Inputs of one turn of the loop."""


@primitive
def unpack_block(
    builder: Any, panels: int, w: Address, groups: Count, code: Address, of_block: Count, out: Address
) -> None:
    """out[k, p] = code[w[p, k]] for the inputs k of a block: `of_block` int32 of each panel, which `groups` follow.

    `out` is float32 [block, panels, LANES]; w, `code` and the constant `panels` are as in `tiles.four_bit_tile`.
    """
    table = load(builder, code, constant(0))
    with cgutils.for_range(builder, of_block) as loop:
        for p in range(panels):
            place = builder.add(builder.mul(groups, constant(p)), loop.index)
            word = load(builder, w, builder.mul(place, constant(LANES)), WORDS)
            further = builder.add(place, builder.mul(groups, constant(panels)))
            fetch(builder, w, [builder.mul(further, constant(LANES))], 4)
            for nibble in range(NIBBLES):
                k = builder.add(builder.mul(loop.index, constant(NIBBLES)), constant(nibble))
                at = builder.mul(builder.add(builder.mul(k, constant(panels)), constant(p)), constant(LANES))
                store(builder, look_up(builder, code, table, shift_to(builder, word, nibble)), out, at)


@primitive
def add_block(
    builder: Any,
    form: int,
    rows: int,
    panels: int,
    x: Address,
    x_row: Count,
    w: Address,
    scales: Address,
    zero_points: Address,
    totals: Address,
    blocks: Count,
    block: Count,
    y: Address,
) -> None:
    """y[r, p] += scales[p] * the sum over a block's k of x[r, k] (w[k, p] - zero[p]), w as `unpack_block` leaves it.

    y is float32 [rows, panels, LANES], x float32, its rows `x_row` elements apart; the scales of the next panel are
    `blocks` vectors further, and its zeros. `totals` begin with this block's. `form`, FOUR_BIT or SHIFTED, `rows` and
    `panels` are constants.
    """
    sums = zeros(builder, rows, panels, LANES)
    with cgutils.for_range(builder, builder.sdiv(block, constant(STEPS))) as loop:
        for step in range(STEPS):
            k = builder.add(builder.mul(loop.index, constant(STEPS)), constant(step))
            first = builder.mul(k, constant(panels * LANES))
            weights = [load(builder, w, builder.add(first, constant(LANES * p))) for p in range(panels)]
            add_products(builder, sums, x, x_row, k, weights)
    of_panel = [builder.mul(blocks, constant(LANES * p)) for p in range(panels)]
    if form == SHIFTED:
        own = [load_zeros(builder, zero_points, at) for at in of_panel]
        subtract_zeros(builder, sums, own, totals, blocks, constant(0))
    factors = [load(builder, scales, at) for at in of_panel]
    add_scaled_sums(builder, sums, factors, y, constant(panels * LANES))
