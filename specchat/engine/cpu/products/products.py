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
from specchat.engine.cpu.primitives.simd import byte_tables, inner, wide_vectors
from specchat.engine.cpu.products.four_bit import MANY, TOGETHER, add_group, clear, end_block, shift_sums, stack_room
from specchat.engine.cpu.products.tiles import (
    FLOAT16,
    FOUR_BIT,
    INT8,
    NIBBLES,
    SHIFTED,
    WIDTHS,
    four_bit_tile,
    sum_blocks,
    tile,
)
from specchat.engine.cpu.products.unpacked import FOR_MANY, add_block, unpack_block
from specchat.engine.formats.format import BLOCK as LOADED_BLOCK
from specchat.engine.memory.vectors import LANES


class RowSpan(NamedTuple):
    """Float32 rows in memory: the first at address `at`, each `row` elements after the one before."""

    at: int
    row: int


MOST_BLOCKS = 1024
"""Most blocks of a row with zeros, the sums of whose inputs lie on the stack."""
ROWS = 8
"""Most rows of a tile on any processor."""
MOST, WIDEST, TURN, WHOLE, FIRST = range(5)
KERNELS = FIRST + ROWS + 1
"""Columns of the table of compiled products of a format.

Most rows of a call; most panels of a tile; panels that many rows are multiplied with in turn, which fit in a core's
cache; ROW_MULTIPLE, of which more than ROWS rows are multiples; addresses by rows, the last for more than ROWS.
"""

WIDE = {1: 8, 2: 6, 3: 6, 4: 4, 5: 4, 6: 4, 7: 3, 8: 3}
"""Panels of a tile by its rows, for 32 vector registers of 512 bits."""
FOR_ALL = {FOR_MANY: WIDE[ROWS]}
"""The same for weights of 4 bits and any multiple of ROWS."""
NARROW = {1: 4, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1}
"""The same for 16 of 256."""
UNPACKED = {1: 4, 2: 4, TOGETHER: 4}
"""The same for weights of 4 bits there; the last is for any number of rows up to MANY."""


@cache
def kernels(form: int) -> NDArray[np.int64]:
    """Compiled products for weights of a format: int64 [KERNELS]; the product for most rows fills the rest.

    Arguments of a product: x, row of x, row of the table of products, y, row of y, first panel, last panel, rows, as
    addresses and counts of elements. It takes at least the panels of a tile.
    """
    four = form in (FOUR_BIT, SHIFTED)
    unpacked, wide = four and byte_tables(), wide_vectors()
    panels = UNPACKED if unpacked else WIDE | (FOR_ALL if four else {}) if wide else NARROW
    try:
        _compiled.append([_compile_tile(form, *tile) for tile in panels.items()])
    except Exception:  # any error of damaged cache files or a full disk
        compiled.discard_cache("what was compiled before cannot be used")
        _compiled.append([_compile_tile(form, *tile) for tile in panels.items()])
    addresses = [function.address for function in _compiled[-1]]
    found = np.full(KERNELS, addresses[-1], np.int64)
    widest, of_many = max(panels.values()), list(panels.values())[-1]
    turn = -(-widest // of_many) * of_many
    most, whole = (MANY, 1) if unpacked else (max(panels), ROWS if FOR_MANY in panels else 1)
    found[: FIRST + len(panels)] = most, widest, turn, whole, *addresses
    return found


_compiled: list[Any] = []
"""Compiled products, kept alive as long as the process."""
FEW_ROWS = {1: 4, 2: 4}
"""Panels of a tile of float16 weights by its rows, if widening takes longer than sums."""
HALVING = "znver4"
"""Processor with AVX-512 that widens 8 numbers in less than half the time of 16: its 512 bits are two halves."""
SIGNATURE = types.void(*[types.int64] * 8)


def _compile_tile(form: int, rows: int, panels: int) -> Any:
    if rows == FOR_MANY:
        return _four_bit_for_many(form, panels)
    if form in (FOUR_BIT, SHIFTED):
        return _four_bit_unpacked(form, rows, panels) if byte_tables() else _four_bit(form, rows, panels)
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


def _four_bit(form: int, rows: int, panels: int) -> Any:
    shifted, of_totals = form == SHIFTED, max(1, rows * MOST_BLOCKS // LANES * (form == SHIFTED))

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, _: int) -> None:
        of = product_at(matrix)
        inputs, block = of.inputs, of.block
        totals = stack_room(of_totals)
        if shifted:
            sum_blocks(rows, x, x_row, inputs // block, block, totals)
        p = first
        while p < last:
            p = min(p, last - panels)
            w = of.address + p * (inputs // 2 * LANES)
            of_panel = inputs // block * LANES
            scales, zeros = of.scales + p * of_panel * 4, of.zeros + p * of_panel
            code, out = of.code, y + p * LANES * 4
            four_bit_tile(form, rows, panels, x, x_row, w, code, scales, zeros, totals, block, inputs, out, y_row)
            p += panels

    return _compile(columns, f"{form}_{rows}_{panels}")


def _four_bit_for_many(form: int, panels: int) -> Any:
    """Compile a product for any multiple of ROWS up to FOR_MANY."""
    of_weights, of_out = LOADED_BLOCK * panels, FOR_MANY * panels
    shifted, of_totals = form == SHIFTED, max(1, FOR_MANY * MOST_BLOCKS // LANES * (form == SHIFTED))

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, rows: int) -> None:
        of = product_at(matrix)
        inputs, block, code = of.inputs, of.block, of.code
        groups, of_block, many = inputs // NIBBLES, block // NIBBLES, inputs // block
        weights, out, sums = stack_room(of_weights), stack_room(of_out), stack_room(of_totals)
        if shifted:
            sum_blocks(rows, x, x_row, many, block, sums)
        size = panels * LANES
        p = first
        while p < last:
            p = min(p, last - panels)
            w, scales = of.address + 4 * p * groups * LANES, of.scales + 4 * p * many * LANES
            zeros, totals = of.zeros + p * many * LANES, sums
            clear(out, rows * size)
            for begin in range(0, inputs, block):
                unpack_block(panels, w, groups, code, of_block, weights)
                for r in range(0, rows, ROWS):
                    values = x + 4 * (r * x_row + begin)
                    to, own = out + 4 * r * size, totals + 4 * r * many
                    add_block(form, ROWS, panels, values, x_row, weights, scales, zeros, own, many, block, to)
                w += 4 * of_block * LANES
                scales += 4 * LANES
                zeros += LANES
                totals += 4
            for r in range(rows):
                copy_vector(out + 4 * r * size, y + 4 * (r * y_row + p * LANES), size)
            p += panels

    return _compile(columns, f"{form}_many_{panels}")


def _four_bit_unpacked(form: int, few: int, panels: int) -> Any:
    """Compile a product for `few` rows; TOGETHER stands for any number."""
    few = few % TOGETHER
    most = few or MANY
    of_x, of_y = most * LOADED_BLOCK // LANES, most * panels
    shifted, of_totals = form == SHIFTED, max(1, most * MOST_BLOCKS // LANES * (form == SHIFTED))

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, rows: int) -> None:
        of = product_at(matrix)
        inputs, block, code = of.inputs, of.block, of.code
        panel, scale_panel = inputs // 2 * LANES, inputs // block * LANES * 4
        own, sums, out, totals = stack_room(of_x), stack_room(of_y), stack_room(of_y), stack_room(of_totals)
        rows, many = few or rows, inputs // block
        size = rows * LANES
        if shifted:
            sum_blocks(rows, x, x_row, many, block, totals)
        clear(sums, size * panels)
        p = first
        while p < last:
            p = min(p, last - panels)
            w, scales = of.address + p * panel, of.scales + p * scale_panel
            zeros = of.zeros + p * scale_panel // 4
            clear(out, size * panels)
            for begin in range(0, inputs, block):
                values, values_row = x + 4 * begin, x_row
                if not few:
                    # Rows of some strides share a few cache lines; side by side they do not.
                    for r in range(rows):
                        copy_vector(x + 4 * (r * x_row + begin), own + 4 * r * block, block)
                    values, values_row = own, block
                for _ in range(block // NIBBLES):
                    for q in range(panels):
                        of_panel = sums + 4 * q * size
                        add_group(few, rows, values, values_row, w + q * panel, panels * panel, code, of_panel)
                    w += 4 * LANES
                    values += 4 * NIBBLES
                for q in range(panels):
                    at = 4 * q * size
                    if shifted:
                        shift_sums(rows, sums + at, totals + begin // block * 4, many, zeros + q * scale_panel // 4)
                    end_block(rows, sums + at, scales + q * scale_panel, panels * scale_panel, out + at)
                scales += 4 * LANES
                zeros += LANES
            for q in range(panels):
                for r in range(rows):
                    copy_vector(out + 4 * (q * size + r * LANES), y + 4 * (r * y_row + (p + q) * LANES), LANES)
            p += panels

    return _compile(columns, f"{form}_{few}_{panels}_unpacked")


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
    product = product_at(matrix)
    most, turn = word(product.functions, MOST), word(product.functions, TURN)
    p = first
    while p < last:
        q = last if rows <= min(most, ROWS) or last - p < 2 * turn else p + turn
        r = 0
        while r < rows:
            count = min(most, rows - r)
            if count > ROWS:
                count -= count % word(product.functions, WHOLE)
            function = word(product.functions, FIRST + min(count, ROWS + 1) - 1)
            call(function, x.at + 4 * r * x.row, x.row, matrix, y.at + 4 * r * y.row, y.row, p, q, count)
            r += count
        p = q
    size = (last - first) * LANES
    for r in range(rows):
        out = y.at + 4 * (r * y.row + first * LANES)
        if product.form == INT8:
            multiply_vector(product.scales + 4 * first * LANES, out, size)
        if product.bias:
            add_vector(product.bias + 4 * first * LANES, out, size)
