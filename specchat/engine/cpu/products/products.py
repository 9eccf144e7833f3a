"""Products with packed weights: y = x W^T + b for any number of rows, in tiles whose sums fit in registers.

The size of a tile affects speed alone: `tiles.tile` sums every output in one order.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu import compiled
from specchat.engine.cpu.primitives.atomics import call, word
from specchat.engine.cpu.primitives.records import product_at
from specchat.engine.cpu.primitives.rowwise import add_vector, copy_vector, multiply_vector
from specchat.engine.cpu.primitives.simd import inner, wide_vectors
from specchat.engine.cpu.products.block_form import BLOCKED
from specchat.engine.cpu.products.columns import ROWS, compile_tile, is_rounded, panels_by_rows, turn_of
from specchat.engine.cpu.products.tiles import INT8
from specchat.engine.cpu.products.unpacked import stack_room
from specchat.engine.memory.vectors import FEW, LANES


class RowSpan(NamedTuple):
    """Float32 rows in memory: the first at address `at`, each `row` elements after the one before."""

    at: int
    row: int


MOST, WIDEST, TURN, WHOLE, FIRST = range(5)
OF_NARROW = ROWS * FEW
"""Vectors of the outputs of fewer panels than a product has at a time."""
KERNELS = FIRST + ROWS + 1
"""Columns of the table of compiled products of a format.

Most rows of a call; most panels of a tile; panels that many rows are multiplied with in turn, which fit in a core's
cache; ROW_MULTIPLE, of which more than ROWS rows are multiples; addresses by rows, the last for more than ROWS.
"""


_compiled: list[Any] = []
"""Compiled products, kept alive as long as the process."""


@cache
def kernels(form: int) -> NDArray[np.int64]:
    """Compiled products for weights of a format: int64 [KERNELS]; the product for most rows fills the rest.

    Arguments of a product: x, row of x, row of the table of products, y, row of y, first panel, last panel, rows, as
    addresses and counts of elements. It takes at least the panels of a tile.
    """
    panels = panels_by_rows(form)
    try:
        _compiled.append([compile_tile(form, *tile) for tile in panels.items()])
    except Exception:  # any error of damaged cache files or a full disk
        compiled.discard_cache("what was compiled before cannot be used")
        _compiled.append([compile_tile(form, *tile) for tile in panels.items()])
    addresses = [function.address for function in _compiled[-1]]
    found = np.full(KERNELS, addresses[-1], np.int64)
    most, whole = max(panels), ROWS if form >= BLOCKED and wide_vectors() and not is_rounded(form) else 1
    found[: FIRST + len(panels)] = most, max(panels.values()), turn_of(form), whole, *addresses
    return found


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
