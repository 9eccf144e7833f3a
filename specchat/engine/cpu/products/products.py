"""Products with packed weights: y = x W^T + b for any number of rows, in tiles whose sums fit in registers.

The size of a tile affects speed alone: `tiles.tile` sums every output in one order.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cfunc, types
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from specchat.engine.cpu import compiled
from specchat.engine.cpu.primitives.atomics import call, word
from specchat.engine.cpu.primitives.records import product_at
from specchat.engine.cpu.primitives.rowwise import add_vector, copy_vector, multiply_vector
from specchat.engine.cpu.primitives.simd import inner, wide_vectors
from specchat.engine.cpu.products.blocks import BLOCKED, GROUP, BlockForm
from specchat.engine.cpu.products.integers import multiply_rounded
from specchat.engine.cpu.products.rounding import round_rows
from specchat.engine.cpu.products.tiles import FLOAT16, INT8, WIDTHS, block_tile, read_dense_row, sum_blocks, tile
from specchat.engine.cpu.products.unpacked import FOR_MANY, add_blocks, read_row, stack_bytes, stack_room
from specchat.engine.formats.format import BLOCK as LOADED_BLOCK
from specchat.engine.formats.format import SUPER_BLOCK
from specchat.engine.memory.vectors import FEW, LANES


class RowSpan(NamedTuple):
    """Float32 rows in memory: the first at address `at`, each `row` elements after the one before."""

    at: int
    row: int


MOST_BLOCKS = 2048
"""Most blocks of a row whose products need the sums of inputs of blocks, which lie on the stack."""
ROWS = 8
"""Most rows of a tile on any processor."""
MOST, WIDEST, TURN, WHOLE, FIRST = range(5)
OF_NARROW = ROWS * FEW
"""Vectors of the outputs of fewer panels than a product has at a time."""
KERNELS = FIRST + ROWS + 1
"""Columns of the table of compiled products of a format.

Most rows of a call; most panels of a tile; panels that many rows are multiplied with in turn, which fit in a core's
cache; ROW_MULTIPLE, of which more than ROWS rows are multiples; addresses by rows, the last for more than ROWS.
"""

WIDE = {1: 8, 2: 6, 3: 6, 4: 4, 5: 4, 6: 4, 7: 3, 8: 3}
"""Panels of a tile by its rows, for 32 vector registers of 512 bits."""
NARROW = {1: 4, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1}
"""The same for 16 of 256."""
UNPACKED = {1: 2, 2: 1, FOR_MANY: 4}
"""The same for weights in blocks there."""
ROUNDED = {True: {1: 4, 2: 4, FOR_MANY: 2}, False: {1: 4, 2: 2, FOR_MANY: 1}}
"""The same for rows of bytes, for both."""
OF_ROUNDED = {True: 8, False: 4}
"""Most rows of a tile of many such rows."""
TURN_OF_ROUNDED = 32
"""Panels that many such rows are multiplied with in turn: rows are rounded again for each."""
TILES = {True: (ROWS, WIDE[ROWS]), False: (4, 1)}
"""Rows and panels of a tile of unpacked weights, for both."""


@cache
def kernels(form: int) -> NDArray[np.int64]:
    """Compiled products for weights of a format: int64 [KERNELS]; the product for most rows fills the rest.

    Arguments of a product: x, row of x, row of the table of products, y, row of y, first panel, last panel, rows, as
    addresses and counts of elements. It takes at least the panels of a tile.
    """
    panels = _panels_by_rows(form)
    try:
        _compiled.append([_compile_tile(form, *tile) for tile in panels.items()])
    except Exception:  # any error of damaged cache files or a full disk
        compiled.discard_cache("what was compiled before cannot be used")
        _compiled.append([_compile_tile(form, *tile) for tile in panels.items()])
    addresses = [function.address for function in _compiled[-1]]
    found = np.full(KERNELS, addresses[-1], np.int64)
    widest, of_many = max(panels.values()), list(panels.values())[-1]
    turn = TURN_OF_ROUNDED if is_rounded(form) else -(-widest // of_many) * of_many
    most, whole = max(panels), ROWS if form >= BLOCKED and wide_vectors() and not is_rounded(form) else 1
    found[: FIRST + len(panels)] = most, widest, turn, whole, *addresses
    return found


def is_rounded(form: int) -> bool:
    """Return True for a format whose rows are rounded to bytes."""
    return form >= BLOCKED and BlockForm.of(form).rounded > 0


def _panels_by_rows(form: int) -> dict[int, int]:
    """Panels of a tile by its rows."""
    wide = wide_vectors()
    if is_rounded(form):
        return ROUNDED[wide]
    if form < BLOCKED:
        return WIDE if wide else NARROW
    return WIDE | {FOR_MANY: TILES[True][1]} if wide else UNPACKED


_compiled: list[Any] = []
"""Compiled products, kept alive as long as the process."""
FEW_ROWS = {1: 4, 2: 4}
"""Panels of a tile of float16 weights by its rows, if widening takes longer than sums."""
HALVING = "znver4"
"""Processor with AVX-512 that widens 8 numbers in less than half the time of 16: its 512 bits are two halves."""
SIGNATURE = types.void(*[types.int64] * 8)


def _compile_tile(form: int, rows: int, panels: int) -> Any:
    if is_rounded(form):
        return _rounded(form, rows, panels)
    if form >= BLOCKED:
        return _unpacked(form, panels) if rows == FOR_MANY else _blocked(form, rows, panels)
    if form == FLOAT16 and rows in FEW_ROWS:
        return _dense(form, rows, min(panels, FEW_ROWS[rows]), LANES if _whole() else LANES // 2)
    return _dense(form, rows, panels)


def _whole() -> bool:
    """Return True if widening 16 numbers at a time is fastest."""
    _, name, _ = cpu_target.target_context.codegen().magic_tuple()
    return wide_vectors() and name != HALVING


def _dense(form: int, rows: int, panels: int, lanes: int = LANES) -> Any:
    width = WIDTHS[form]

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, _: int) -> None:
        of = product_at(matrix)
        inputs = of.inputs
        panel = inputs * LANES
        p = first
        while p < last:
            # The last tile overlaps the one before it and computes the same numbers again.
            p = min(p, last - panels)
            w = of.address + p * panel * width
            tile(form, rows, panels, lanes, x, x_row, w, LANES, panel, inputs, y + p * LANES * 4, y_row)
            p += panels

    return _compile(columns, f"{form}_{rows}_{panels}_{lanes}")


def _sums_of(form: int, rows: int) -> int:
    """Vectors of the sums of the inputs of blocks."""
    return rows * MOST_BLOCKS // LANES if BlockForm.of(form).has_totals else 1


def _blocked(form: int, rows: int, panels: int) -> Any:
    of_totals = _sums_of(form, rows)
    summed = of_totals > 1

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, _: int) -> None:
        totals = stack_room(of_totals)
        if summed:
            of = product_at(matrix)
            sum_blocks(rows, x, x_row, of.inputs // of.block, of.block, totals)
        p = first
        while p < last:
            p = min(p, last - panels)
            block_tile(form, rows, panels, x, x_row, matrix, p, totals, y + p * LANES * 4, y_row)
            p += panels

    return _compile(columns, f"{form}_{rows}_{panels}")


def _unpacked(form: int, panels: int) -> Any:
    """Compile a product for any number of rows up to FOR_MANY; with 512 bits for multiples of ROWS."""
    few, side = TILES[wide_vectors()]
    of_weights, of_out, of_totals = LOADED_BLOCK * panels, FOR_MANY * panels, _sums_of(form, FOR_MANY)
    summed = of_totals > 1

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, rows: int) -> None:
        room, out, totals = stack_room(of_weights), stack_room(of_out), stack_room(of_totals)
        if summed:
            of = product_at(matrix)
            sum_blocks(rows, x, x_row, of.inputs // of.block, of.block, totals)
        size = panels * LANES
        p = first
        while p < last:
            p = min(p, last - panels)
            add_blocks(form, few, side, panels, rows, x, x_row, matrix, p, totals, room, out)
            for r in range(rows):
                copy_vector(out + 4 * r * size, y + 4 * (r * y_row + p * LANES), size)
            p += panels

    return _compile(columns, f"{form}_many_{panels}")


def _rounded(form: int, rows: int, panels: int) -> Any:
    """Compile a product of rows that are rounded to bytes first: `rows` of them, or any number up to FOR_MANY."""
    of_any = rows == FOR_MANY
    few, paired = (OF_ROUNDED[wide_vectors()] if of_any else rows), int(BlockForm.of(form).low < GROUP)
    rest, by_supers = int(of_any), BlockForm.of(form).by_supers

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, count: int) -> None:
        of = product_at(matrix)
        inputs, block = of.inputs, of.block
        scaled = SUPER_BLOCK if by_supers else block
        room = stack_bytes(count * (inputs + 4 * (inputs // scaled) + 4 * (inputs // block)))
        scales = room + count * inputs
        totals = scales + 4 * count * (inputs // scaled)
        round_rows(paired, count, x, x_row, inputs, scaled, block, room, scales, totals)
        p = first
        while p < last:
            p = min(p, last - panels)
            out = y + 4 * p * LANES
            multiply_rounded(form, few, rest, panels, count, room, scales, totals, matrix, p, out, y_row)
            p += panels

    return _compile(columns, f"{form}_{rows}_{panels}")


@cache
def row_reader(form: int) -> Any:
    """Compiled function that reads an output of a product as float32 [inputs].

    Arguments: row of the table of products, output, where to; the others are unused.
    """
    if form >= BLOCKED:

        def row(matrix: int, output: int, out: int, _: int, _b: int, _c: int, _d: int, _e: int) -> None:
            read_row(form, matrix, output, out)

    else:

        def row(matrix: int, output: int, out: int, _: int, _b: int, _c: int, _d: int, _e: int) -> None:
            of = product_at(matrix)
            read_dense_row(form, of.address, output, of.inputs, out)

    return _compile(row, f"{form}_row")


def _compile(columns: Callable[..., None], name: str) -> Any:
    """Compile with cache files of its own name: numba numbers files of one name without a lock between processes."""
    columns.__qualname__ = f"columns_{name}"
    return cfunc(SIGNATURE, cache=compiled.caches_code())(columns)


@inner
def min_panels(matrix: int) -> int:
    """Fewest panels of a product at a time."""
    panels: int = word(product_at(matrix).functions, WIDEST)
    return panels


@inner
def multiply(rows: int, x: Any, matrix: int, y: Any, first: int, last: int) -> None:
    """Compute outputs of panels `first` to `last`, at least `min_panels` of them, for `rows` rows.

    x and y are `RowSpan`; those of y have LANES * panels outputs. `matrix` is the address of a PRODUCT.
    """
    begin, part = 0, matrix
    while part and begin < last:
        of = product_at(part)
        end = begin + of.stored
        if first < end:
            out = RowSpan(y.at + 4 * begin * LANES, y.row)
            _multiply(rows, x, part, out, max(first, begin) - begin, min(last, end) - begin)
        begin, part = end, of.next


@inner
def _multiply(rows: int, x: Any, matrix: int, y: Any, first: int, last: int) -> None:
    """Do so with panels of one PRODUCT, of any number."""
    product = product_at(matrix)
    most, turn, fewest = word(product.functions, MOST), word(product.functions, TURN), min_panels(matrix)
    narrow = last - first < fewest
    room = stack_room(OF_NARROW)
    if narrow:
        most = min(most, ROWS)
    p = first
    while p < last:
        q = last if narrow or rows <= min(most, ROWS) or last - p < 2 * turn else p + turn
        r = 0
        while r < rows:
            count = min(most, rows - r)
            if count > ROWS:
                count -= count % word(product.functions, WHOLE)
            function = word(product.functions, FIRST + min(count, ROWS + 1) - 1)
            of_x, out = x.at + 4 * r * x.row, y.at + 4 * r * y.row
            if narrow:
                # Other threads may write the panels beside these.
                before = max(0, last - fewest)
                call(
                    function,
                    of_x,
                    x.row,
                    matrix,
                    room - 4 * before * LANES,
                    FEW * LANES,
                    before,
                    before + fewest,
                    count,
                )
                for i in range(count):
                    begins = room + 4 * (i * FEW + first - before) * LANES
                    copy_vector(begins, out + 4 * (i * y.row + first * LANES), (last - first) * LANES)
            else:
                call(function, of_x, x.row, matrix, out, y.row, p, q, count)
            r += count
        p = q
    size = (last - first) * LANES
    for r in range(rows):
        out = y.at + 4 * (r * y.row + first * LANES)
        if product.form == INT8:
            multiply_vector(product.scales + 4 * first * LANES, out, size)
        if product.bias:
            add_vector(product.bias + 4 * first * LANES, out, size)
