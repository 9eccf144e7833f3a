"""Products that threads compute together: each takes the next free piece, and all meet at a barrier after the last.

The result of a piece does not depend on the thread that computes it.
"""

import numpy as np

from specchat.engine.cpu.atomics import atomic_load, fetch_add, pause, relax, word
from specchat.engine.cpu.gates import gate_by
from specchat.engine.cpu.products import INPUTS, ORDER, PANELS, min_panels, multiply
from specchat.engine.cpu.rowwise import add_scaled, cap_vector, gather, norm
from specchat.engine.cpu.simd import inner
from specchat.engine.memory.vectors import LANES

ARRIVED, LINE = 0, 8
"""Counters are LINE words, a cache line, apart: arrivals at the barrier, then pieces taken of each product."""
PIECES = 4
"""Pieces of a product for each thread, so that a slow thread delays the others little."""
NO_CAP = np.float32(0.0)
SPINS = 2000
"""Looks at a counter before the thread yields the processor."""


@inner
def spin(looks: int) -> int:
    """Pause after a look at a counter, the `looks` + 1st; return the number of looks."""
    pause()
    if (looks + 1) % SPINS == 0:
        relax()
    return looks + 1


@inner
def barrier(counters: int, passed: int, threads: int) -> int:
    """Wait at the `passed` + 1st barrier until all threads are there; return the number of barriers passed."""
    if threads > 1:
        fetch_add(counters, ARRIVED)
        looks = 0
        while atomic_load(counters) < (passed + 1) * threads:
            looks = spin(looks)
    return passed + 1


@inner
def piece_size(panels: int, few: int, threads: int) -> int:
    """Panels of a piece, a multiple of `few`."""
    return panels if threads == 1 else max(few, -(-panels // (PIECES * threads) // few) * few)


@inner
def next_piece(counters: int, which: int, threads: int, alone: int) -> int:
    """Take the next free piece and return its number; `alone` if there is one thread."""
    return fetch_add(counters, LINE * (1 + which)) if threads > 1 else alone


@inner
def piece_end(index: int, panels: int, few: int, size: int) -> int:
    """End of piece `index`, which includes a rest of less than `few` panels; 0 for no piece."""
    first = index * size
    if panels - first < few:
        return 0
    return panels if panels - first - size < few else first + size


@inner
def in_order(rows: int, x: int, x_row: int, matrix: int, out: int, out_row: int) -> bool:
    """Write the inputs of a product in the order of its weights; False if that is their own, and nothing is written."""
    order = word(matrix, ORDER)
    moved: bool = order != 0
    if moved:
        for r in range(rows):
            gather(x + 4 * r * x_row, order, out + 4 * r * out_row, word(matrix, INPUTS))
    return moved


@inner
def product(
    rows: int,
    x: int,
    x_row: int,
    matrix: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    cap: np.float32,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """y = x W^T + b; with a cap y = cap * tanh(y / cap)."""
    panels, few = word(matrix, PANELS), min_panels(matrix, kernels)
    size, index = piece_size(panels, few, threads), next_piece(counters, which, threads, 0)
    last = piece_end(index, panels, few, size)
    while last:
        first = index * size
        multiply(rows, x, x_row, matrix, kernels, extras, y, y_row, first, last)
        if cap > 0.0:
            for r in range(rows):
                cap_vector(y + 4 * (r * y_row + first * LANES), (last - first) * LANES, cap)
        index = next_piece(counters, which, threads, index + 1)
        last = piece_end(index, panels, few, size)


@inner
def add_product(
    rows: int,
    y: int,
    y_row: int,
    matrix: int,
    kernels: int,
    extras: int,
    x: int,
    hidden: int,
    factor: np.float32,
    post: int,
    eps: np.float32,
    own: int,
    own_row: int,
    counters: int,
    which: int,
    passed: int,
    thread: int,
    threads: int,
) -> int:
    """x = x + factor * (y W^T + b), x float32 [rows, hidden]; what is added goes through the norm `post` if any.

    All threads then meet at a barrier. Returns the number of barriers passed. With a norm, rows of y end with room for
    the product.
    """
    panels, few = word(matrix, PANELS), min_panels(matrix, kernels)
    if post:
        end_of_row = y + 4 * (y_row - LANES * panels)
        product(rows, y, y_row, matrix, kernels, extras, end_of_row, y_row, NO_CAP, counters, which, threads)
        passed = barrier(counters, passed, threads)
        for r in range(thread, rows, threads):
            norm(end_of_row + 4 * r * y_row, post, own, hidden, eps)
            add_scaled(own, x + 4 * r * hidden, hidden, factor)
        return barrier(counters, passed, threads)
    size, index = piece_size(panels, few, threads), next_piece(counters, which, threads, 0)
    last = piece_end(index, panels, few, size)
    while last:
        first = index * size
        multiply(rows, y, y_row, matrix, kernels, extras, own, own_row, first, last)
        for r in range(rows):
            begin, stop = first * LANES, min(last * LANES, hidden)
            add_scaled(own + 4 * (r * own_row + begin), x + 4 * (r * hidden + begin), stop - begin, factor)
        index = next_piece(counters, which, threads, index + 1)
        last = piece_end(index, panels, few, size)
    return barrier(counters, passed, threads)


@inner
def gated_product(
    rows: int,
    x: int,
    x_row: int,
    matrix: int,
    activation: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """First half of y = gate(x G^T, x U^T) by `activation`, a code of `gates.CODES`; `matrix` is G followed by U."""
    panels, few = word(matrix, PANELS) // 2, min_panels(matrix, kernels)
    size, index = piece_size(panels, few, threads), next_piece(counters, which, threads, 0)
    last = piece_end(index, panels, few, size)
    while last:
        gated_piece(rows, x, x_row, matrix, activation, kernels, extras, y, y_row, index * size, last)
        index = next_piece(counters, which, threads, index + 1)
        last = piece_end(index, panels, few, size)


@inner
def gated_piece(
    rows: int,
    x: int,
    x_row: int,
    matrix: int,
    activation: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    first: int,
    last: int,
) -> None:
    """Panels `first`, ..., `last` - 1 of `gated_product`, for one thread."""
    panels = word(matrix, PANELS) // 2
    for part in (0, panels):
        multiply(rows, x, x_row, matrix, kernels, extras, y, y_row, part + first, part + last)
    for r in range(rows):
        gate = y + 4 * (r * y_row + first * LANES)
        gate_by(activation, gate, gate + 4 * panels * LANES, (last - first) * LANES)
