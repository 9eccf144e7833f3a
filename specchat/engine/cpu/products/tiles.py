"""Inner loops of the products: tiles of sums in registers, for every storage format of weights."""

from typing import Any

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
    at,
    broadcast,
    constant,
    each_vector,
    fma,
    instruction,
    load,
    primitive,
    reduce_lanes,
    splat,
    store,
    wide_vectors,
)
from specchat.engine.memory.vectors import LANES

FLOAT32, FLOAT16, BFLOAT16, INT8, FOUR_BIT, SHIFTED = range(6)
"""Storage formats of the weights of a product; SHIFTED is FOUR_BIT with zero points."""
WIDTHS = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2, INT8: 1}
"""Bytes of a weight."""
FETCHING = 2
"""Most rows of a product that is memory-bound where a tile has many panels.

Narrow tiles read one or two panels, of which a processor prefetches too little by itself.
"""
NIBBLES = 8
"""4-bit weights in an int32: loaded so, they need not be spread over lanes one by one."""


def load_widened(builder: Any, form: int, address: Any, offset: Any, lanes: int) -> Any:
    """Load `lanes` consecutive weights as float32: the exact stored values, without the scales of quantised ones."""

    def stored(kind: Any, width: int) -> Any:
        return load(builder, address, offset, ir.VectorType(kind, lanes), width)

    wide = ir.VectorType(F32, lanes)
    if form == FLOAT32:
        return stored(F32, 4)
    if form == FLOAT16:
        return builder.fpext(stored(ir.HalfType(), 2), wide)
    if form == BFLOAT16:
        words = ir.VectorType(I32, lanes)
        raised = builder.shl(builder.zext(stored(ir.IntType(16), 2), words), ir.Constant(words, [16] * lanes))
        return builder.bitcast(raised, wide)
    return builder.sitofp(stored(ir.IntType(8), 1), wide)


@primitive
def tile(
    builder: Any,
    form: int,
    rows: int,
    panels: int,
    lanes: int,
    x: Address,
    x_row: Count,
    w: Address,
    step: Count,
    panel: Count,
    inputs: Count,
    y: Address,
    y_row: Count,
) -> None:
    """y[r, 16 p ...] = the sum over k of x[r, k] w[p, k] for `rows` rows and `panels` panels of LANES outputs.

    x and y are float32, their rows `x_row` and `y_row` elements apart. In w the next k is `step` elements
    further, the next panel `panel` further. `form`, `rows`, `panels` and `lanes` are constants; vectors have `lanes`.
    """
    parts = [(p, lane) for p in range(panels) for lane in range(0, LANES, lanes)]
    sums = zeros(builder, rows, len(parts), lanes)
    with cgutils.for_range(builder, inputs) as loop:
        at = builder.mul(loop.index, step)
        places = [builder.add(at, builder.add(builder.mul(panel, constant(p)), constant(lane))) for p, lane in parts]
        weights = [load_widened(builder, form, w, place, lanes) for place in places]
        if (rows <= FETCHING or not wide_vectors()) and form != FLOAT32:
            further = builder.mul(panel, constant(panels))
            fetch(builder, w, [builder.add(place, further) for place in places], WIDTHS[form])
        add_products(builder, sums, x, x_row, loop.index, weights)
    _put(builder, [[builder.load(slot) for slot in row] for row in sums], y, y_row)


@primitive
def four_bit_tile(
    builder: Any,
    form: int,
    rows: int,
    panels: int,
    x: Address,
    x_row: Count,
    w: Address,
    code: Address,
    scales: Address,
    zero_points: Address,
    totals: Address,
    block: Count,
    inputs: Count,
    y: Address,
    y_row: Count,
) -> None:
    """Compute a `tile` with weights (code[nibble] - zero) * scale.

    `form`, a constant, is SHIFTED, or FOUR_BIT, which has no zeros. A panel's int32 hold NIBBLES inputs each, the first
    in the lowest four bits. `scales` is float32 [panels, inputs / block, LANES], `zero_points` int8 of that shape,
    `code` float32 [16]; `totals` are of `sum_blocks`. The scale multiplies a block's sum, not each weight, which halves
    the multiplications; the zero multiplies the sum of the block's inputs.
    """
    table = load(builder, code, constant(0))
    blocks, groups = builder.sdiv(inputs, block), builder.sdiv(inputs, constant(NIBBLES))
    of_block = builder.sdiv(block, constant(NIBBLES))
    _put(builder, [[splat(0.0)] * panels] * rows, y, y_row)
    with cgutils.for_range(builder, blocks) as outer:
        sums = zeros(builder, rows, panels, LANES)
        with cgutils.for_range(builder, of_block) as loop:
            group = builder.add(builder.mul(outer.index, of_block), loop.index)
            places = [builder.add(builder.mul(groups, constant(p)), group) for p in range(panels)]
            words = [load(builder, w, builder.mul(place, constant(LANES)), WORDS) for place in places]
            further = builder.mul(groups, constant(panels))
            fetch(builder, w, [builder.mul(builder.add(at, further), constant(LANES)) for at in places], 4)
            first = builder.mul(group, constant(NIBBLES))
            for nibble in range(NIBBLES):
                weights = [look_up(builder, code, table, shift_to(builder, one, nibble)) for one in words]
                add_products(builder, sums, x, x_row, builder.add(first, constant(nibble)), weights)
        of_panel = [builder.add(builder.mul(blocks, constant(p)), outer.index) for p in range(panels)]
        if form == SHIFTED:
            own = [load_zeros(builder, zero_points, builder.mul(at, constant(LANES))) for at in of_panel]
            subtract_zeros(builder, sums, own, totals, blocks, outer.index)
        scaled = [load(builder, scales, builder.mul(at, constant(LANES))) for at in of_panel]
        add_scaled_sums(builder, sums, scaled, y, y_row)


@primitive
def sum_blocks(
    builder: Any, rows: Count, x: Address, x_row: Count, blocks: Count, block: Count, totals: Address
) -> None:
    """totals[r, b] = the sum of x[r, k] over the `block` inputs k of block b; float32 [rows, blocks]."""
    with cgutils.for_range(builder, rows) as row, cgutils.for_range(builder, blocks) as one:
        first = builder.add(builder.mul(x_row, row.index), builder.mul(block, one.index))
        total = cgutils.alloca_once(builder, VECTOR)
        builder.store(splat(0.0), total)

        def add(place: Any) -> None:
            builder.store(builder.fadd(builder.load(total), load(builder, x, builder.add(first, place))), total)

        each_vector(builder, block, add)
        found = reduce_lanes(builder, builder.load(total), builder.fadd)
        store(builder, found, totals, builder.add(builder.mul(blocks, row.index), one.index))


def load_zeros(builder: Any, address: Any, offset: Any) -> Any:
    """Load LANES int8 as float32."""
    return builder.sitofp(load(builder, address, offset, ir.VectorType(ir.IntType(8), LANES), 1), VECTOR)


def subtract_zeros(builder: Any, sums: list[list[Any]], zeros: list[Any], totals: Any, blocks: Any, block: Any) -> None:
    """sums[r][p] -= zeros[p] * totals[r, block]."""
    for r, row in enumerate(sums):
        total = load(builder, totals, builder.add(builder.mul(blocks, constant(r)), block), F32)
        for slot, zero in zip(row, zeros, strict=True):
            builder.store(less_zeros(builder, builder.load(slot), zero, total), slot)


def less_zeros(builder: Any, sums: Any, zeros: Any, total: Any) -> Any:
    """sums - zeros * total, vectors and a number."""
    return fma(builder, broadcast(builder, builder.fneg(total)), zeros, sums)


def fetch(builder: Any, address: Any, offsets: list[Any], width: int) -> None:
    """Prefetch the next tile's weights, `offsets` elements of `width` bytes after `address`, into the level-2 cache.

    A processor prefetches a long sequence by itself, but a panel ends before that helps.
    """
    for offset in offsets:
        pointer = at(builder, address, offset, ir.IntType(8), width)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, *(ir.Constant(I32, flag) for flag in (0, 2, 1))])  # read, level-2 cache, data


def shift_to(builder: Any, words: Any, nibble: int) -> Any:
    """Shift a vector of int32 so that `nibble` has the lowest four bits."""
    return builder.lshr(words, ir.Constant(WORDS, [4 * nibble] * LANES)) if nibble else words


def look_up(builder: Any, code: Any, table: Any, indices: Any) -> Any:
    """Look up code[index] in every lane, by the lowest four bits of its index."""
    if wide_vectors():
        return instruction(builder, "llvm.x86.avx512.permvar.sf.512", VECTOR, [table, indices])
    indices = builder.and_(indices, ir.Constant(WORDS, [15] * LANES))
    found = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(LANES):
        place = ir.Constant(I32, lane)
        index = builder.zext(builder.extract_element(indices, place), I64)
        found = builder.insert_element(found, load(builder, code, index, F32, 4), place)
    return found


def zeros(builder: Any, rows: int, vectors: int, lanes: int) -> list[list[Any]]:
    """Sums of a tile, in registers."""
    kind = ir.VectorType(F32, lanes)
    sums = [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(rows)]
    for slot in (slot for row in sums for slot in row):
        builder.store(splat(0.0, lanes), slot)
    return sums


def add_products(builder: Any, sums: list[list[Any]], x: Any, x_row: Any, k: Any, weights: list[Any]) -> None:
    """Add x[r, k] * weights to the sums of each row r."""
    for r, row in enumerate(sums):
        at = builder.add(builder.mul(x_row, constant(r)), k)
        value = broadcast(builder, load(builder, x, at, F32, 4), weights[0].type.count)
        for slot, weight in zip(row, weights, strict=True):
            builder.store(fma(builder, value, weight, builder.load(slot)), slot)


def add_scaled_sums(builder: Any, sums: list[list[Any]], factors: list[Any], y: Any, y_row: Any) -> None:
    """y[r, p] += sums[r][p] * factors[p]."""
    for r, row in enumerate(sums):
        for p, (slot, factor) in enumerate(zip(row, factors, strict=True)):
            place = builder.add(builder.mul(y_row, constant(r)), constant(LANES * p))
            store(builder, fma(builder, builder.load(slot), factor, load(builder, y, place)), y, place)


def _put(builder: Any, vectors: list[list[Any]], y: Any, y_row: Any) -> None:
    for r, row in enumerate(vectors):
        place = builder.mul(y_row, constant(r))
        for vector in row:
            store(builder, vector, y, place)
            place = builder.add(place, constant(vector.type.count))
