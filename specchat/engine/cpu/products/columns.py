"""Products of a storage format, compiled: tiles of some panels of outputs for so many rows."""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import cfunc, types

from specchat.engine.cpu import compiled
from specchat.engine.cpu.primitives.records import product_at
from specchat.engine.cpu.primitives.rowwise import copy_vector
from specchat.engine.cpu.primitives.simd import processor, wide_vectors
from specchat.engine.cpu.products.bfloat16 import begin_small, end_small, narrow_rows, pair_tile, read_pairs
from specchat.engine.cpu.products.block_form import BLOCKED, BlockForm
from specchat.engine.cpu.products.integers import multiply_rounded
from specchat.engine.cpu.products.rounding import round_rows
from specchat.engine.cpu.products.tiles import (
    BFLOAT16_PAIRS,
    FLOAT16,
    WIDTHS,
    block_tile,
    read_dense_row,
    sum_blocks,
    tile,
)
from specchat.engine.cpu.products.unpacked import FOR_MANY, add_blocks, read_row, stack_bytes, stack_room
from specchat.engine.formats.format import BLOCK as LOADED_BLOCK
from specchat.engine.formats.grids import SUPER_BLOCK
from specchat.engine.memory.vectors import LANES

MOST_BLOCKS = 2048
"""Most blocks of a row whose products need the sums of inputs of blocks, which lie on the stack."""
ROWS = 8
"""Most rows of a tile on any processor."""
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

LONG_TURN = 32
"""Least panels of a turn where each rounds the rows again."""
TILES = {True: (ROWS, WIDE[ROWS]), False: (4, 1)}
"""Rows and panels of a tile of unpacked weights, for both."""


def is_rounded(form: int) -> bool:
    """Return True for a format whose rows are rounded to bytes."""
    return form >= BLOCKED and BlockForm.of(form).rounded > 0


def turn_of(form: int) -> int:
    """Panels that many rows are multiplied with in turn; more where each turn rounds the rows again."""
    panels = panels_by_rows(form)
    least = LONG_TURN if is_rounded(form) or form == BFLOAT16_PAIRS else max(panels.values())
    of_many = list(panels.values())[-1]
    return -(-least // of_many) * of_many


def panels_by_rows(form: int) -> dict[int, int]:
    """Panels of a tile by its rows."""
    wide = wide_vectors()
    if is_rounded(form):
        return ROUNDED[wide]
    if form < BLOCKED:
        return WIDE if wide else NARROW
    return WIDE | {FOR_MANY: TILES[True][1]} if wide else UNPACKED


FEW_ROWS = {1: 4, 2: 4}
"""Panels of a tile of float16 weights by its rows, if widening takes longer than sums."""
HALVING = "znver4"
"""Processor with AVX-512 that widens 8 numbers in less than half the time of 16: its 512 bits are two halves."""
SIGNATURE = types.void(*[types.int64] * 8)


def compile_tile(form: int, rows: int, panels: int) -> Any:
    if is_rounded(form):
        return _rounded(form, rows, panels)
    if form >= BLOCKED:
        return _unpacked(form, panels) if rows == FOR_MANY else _blocked(form, rows, panels)
    if form == BFLOAT16_PAIRS:
        return _paired(rows, panels)
    if form == FLOAT16 and rows in FEW_ROWS:
        return _dense(form, rows, min(panels, FEW_ROWS[rows]), LANES if _whole() else LANES // 2)
    return _dense(form, rows, panels)


def _whole() -> bool:
    """Return True if widening 16 numbers at a time is fastest."""
    return wide_vectors() and processor() != HALVING


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


def _paired(rows: int, panels: int) -> Any:
    """Compile a product of rows that become bfloat16 first."""

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, _: int) -> None:
        of = product_at(matrix)
        inputs = of.inputs
        room = stack_bytes(4 * rows * inputs)
        narrow_rows(rows, x, x_row, inputs, room)
        before = begin_small()
        p = first
        while p < last:
            p = min(p, last - panels)
            w = of.address + 2 * p * inputs * LANES
            pair_tile(rows, panels, room, w, inputs // 2, y + p * LANES * 4, y_row)
            p += panels
        end_small(before)

    return _compile(columns, f"{BFLOAT16_PAIRS}_{rows}_{panels}")


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
    few = OF_ROUNDED[wide_vectors()] if of_any else rows
    rest, by_supers = int(of_any), BlockForm.of(form).by_supers

    def columns(x: int, x_row: int, matrix: int, y: int, y_row: int, first: int, last: int, count: int) -> None:
        of = product_at(matrix)
        inputs, block = of.inputs, of.block
        scaled = SUPER_BLOCK if by_supers else block
        room = stack_bytes(count * (inputs + 4 * (inputs // scaled) + 4 * (inputs // block)))
        scales = room + count * inputs
        totals = scales + 4 * count * (inputs // scaled)
        round_rows(form, count, x, x_row, inputs, scaled, block, room, scales, totals)
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

    elif form == BFLOAT16_PAIRS:

        def row(matrix: int, output: int, out: int, _: int, _b: int, _c: int, _d: int, _e: int) -> None:
            of = product_at(matrix)
            read_pairs(of.address, output, of.inputs, out)

    else:

        def row(matrix: int, output: int, out: int, _: int, _b: int, _c: int, _d: int, _e: int) -> None:
            of = product_at(matrix)
            read_dense_row(form, of.address, output, of.inputs, out)

    return _compile(row, f"{form}_row")


def _compile(columns: Callable[..., None], name: str) -> Any:
    """Compile with cache files of its own name: numba numbers files of one name without a lock between processes."""
    columns.__qualname__ = f"columns_{name}"
    return cfunc(SIGNATURE, cache=compiled.caches_code())(columns)
