"""Inner loops of the products: tiles of sums in registers, for every storage format of weights."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    VECTOR,
    Address,
    Count,
    at,
    broadcast,
    constant,
    each_vector,
    fma,
    load,
    primitive,
    reduce_lanes,
    splat,
    store,
    wide_vectors,
)
from specchat.engine.cpu.products.blocks import BlockReader
from specchat.engine.formats.grids import GROUP
from specchat.engine.memory.vectors import LANES

FLOAT32, FLOAT16, BFLOAT16, INT8, BFLOAT16_PAIRS = range(5)
"""Storage formats of the weights of a product, beside those in blocks; BFLOAT16_PAIRS are bfloat16 (`bfloat16.py`)."""
LISTED = 16
"""Added to a storage format of a table of tokens whose rows lie one after another, which no product has."""
WIDTHS = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2, INT8: 1}
"""Bytes of a weight."""
FETCHING = 2
"""Most rows of a product that is memory-bound where a tile has many panels.

Narrow tiles read one or two panels, of which a processor prefetches too little by itself.
"""


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
    put_sums(builder, [[builder.load(slot) for slot in row] for row in sums], y, y_row)


@primitive
def read_dense_row(builder: Any, form: int, packed: Address, row: Count, inputs: Count, out: Address) -> None:
    """out = output `row` of packed dense weights, or row `row` of a table, float32 [inputs]."""
    lanes, form = 1 if form & LISTED else LANES, form & ~LISTED
    panel = builder.mul(builder.sdiv(row, constant(lanes)), inputs)
    first = builder.add(builder.mul(panel, constant(lanes)), builder.srem(row, constant(lanes)))
    with cgutils.for_range(builder, inputs) as loop:
        offset = builder.add(first, builder.mul(loop.index, constant(lanes)))
        store(builder, load_widened(builder, form, packed, offset, 1), out, loop.index)


@primitive
def block_tile(
    builder: Any,
    form: int,
    rows: int,
    panels: int,
    x: Address,
    x_row: Count,
    matrix: Address,
    first: Count,
    totals: Address,
    y: Address,
    y_row: Count,
) -> None:
    """Compute a `tile` of a PRODUCT in blocks from panel `first` on; `totals` are of `sum_blocks`.

    The scale multiplies a block's sum, not each weight, which halves the multiplications.
    """
    weights = BlockReader(builder, form, matrix, first)
    put_sums(builder, [[splat(0.0)] * panels] * rows, y, y_row)
    with cgutils.for_range(builder, weights.blocks) as outer:
        sums = zeros(builder, rows, panels, LANES)
        with cgutils.for_range(builder, weights.of_block) as loop:
            group = builder.add(builder.mul(outer.index, weights.of_block), loop.index)
            groups = [weights.group(p, group) for p in range(panels)]
            for p in range(panels, 2 * panels):
                fetch_group(builder, weights, p, group)
            before = builder.mul(group, constant(GROUP))
            for number in range(GROUP):
                values, k = [weights.value(one, number) for one in groups], builder.add(before, constant(number))
                add_products(builder, sums, x, x_row, k, values, weights.raised(number))
        factors = [weights.factors(p, outer.index) for p in range(panels)]
        add_scaled(builder, weights, sums, factors, totals, outer.index, y, y_row)


def add_scaled(
    builder: Any,
    weights: BlockReader,
    sums: list[list[Any]],
    factors: list[tuple[Any, Any]],
    totals: Any,
    block: Any,
    y: Any,
    y_row: Any,
) -> None:
    """Add the sums of a block, scaled, to y; `block` is its place in `totals` for the first row."""
    for r, row in enumerate(sums):
        total = None
        if weights.has_totals:
            total = load(builder, totals, builder.add(builder.mul(weights.blocks, constant(r)), block), F32)
        for p, slot in enumerate(row):
            place = builder.add(builder.mul(y_row, constant(r)), constant(LANES * p))
            found = weights.add(builder.load(slot), factors[p], total, load(builder, y, place))
            store(builder, found, y, place)


def fetch_group(builder: Any, weights: BlockReader, panel: int, group: Any) -> None:
    """Prefetch a group of a panel."""
    for address, octet in weights.lines(panel, group):
        fetch(builder, address, [octet], 1)


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


def fetch(builder: Any, address: Any, offsets: list[Any], width: int) -> None:
    """Prefetch the next tile's weights, `offsets` elements of `width` bytes after `address`, into the level-2 cache.

    A processor prefetches a long sequence by itself, but a panel ends before that helps.
    """
    for offset in offsets:
        pointer = at(builder, address, offset, ir.IntType(8), width)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, *(ir.Constant(I32, flag) for flag in (0, 2, 1))])  # read, level-2 cache, data


def zeros(builder: Any, rows: int, vectors: int, lanes: int) -> list[list[Any]]:
    """Sums of a tile, in registers."""
    kind = ir.VectorType(F32, lanes)
    sums = [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(rows)]
    for slot in (slot for row in sums for slot in row):
        builder.store(splat(0.0, lanes), slot)
    return sums


def add_products(
    builder: Any, sums: list[list[Any]], x: Any, x_row: Any, k: Any, weights: list[Any], raised: int = 0
) -> None:
    """Add x[r, k] * 2 ** raised * weights to the sums of each row r."""
    for r, row in enumerate(sums):
        at = builder.add(builder.mul(x_row, constant(r)), k)
        value = broadcast(builder, load(builder, x, at, F32, 4), weights[0].type.count)
        if raised:
            value = builder.fmul(value, splat(float(1 << raised), weights[0].type.count))
        for slot, weight in zip(row, weights, strict=True):
            builder.store(fma(builder, value, weight, builder.load(slot)), slot)


def put_sums(builder: Any, vectors: list[list[Any]], y: Any, y_row: Any) -> None:
    """y = the vectors of each row, one after another; rows are `y_row` elements apart."""
    for r, row in enumerate(vectors):
        place = builder.mul(y_row, constant(r))
        for vector in row:
            store(builder, vector, y, place)
            place = builder.add(place, constant(vector.type.count))
