"""Products that threads compute together: each takes the next free piece, and all meet at a barrier after the last.

The result of a piece does not depend on the thread that computes it.
"""

from typing import Any

import numpy as np

from specchat.engine.cpu.primitives.activations import UNGATED_GELU, activate, cap_vector, gate_by
from specchat.engine.cpu.primitives.atomics import atomic_load, fetch_add, pause, relax
from specchat.engine.cpu.primitives.records import product_at
from specchat.engine.cpu.primitives.rowwise import gather
from specchat.engine.cpu.primitives.simd import inner
from specchat.engine.cpu.products.products import min_panels, multiply
from specchat.engine.memory.vectors import LANES

LINE = 8
"""Counters are LINE words, a cache line, apart: arrivals at the barrier, then the pieces taken of each product."""
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
def barrier(run: Any) -> None:
    """Wait until all threads of a pass are there."""
    run.passed = run.passed + 1
    if run.threads > 1:
        fetch_add(run.counters, 0)
        looks = 0
        while atomic_load(run.counters) < run.passed * run.threads:
            looks = spin(looks)


@inner
def next_turn(run: Any) -> int:
    """Counter of the next product that the threads share."""
    run.turns = run.turns + 1
    counter: int = run.turns
    return counter


@inner
def piece_size(panels: int, few: int, threads: int) -> int:
    """Panels of a piece, a multiple of `few`."""
    return panels if threads == 1 else max(few, -(-panels // (PIECES * threads) // few) * few)


@inner
def next_piece(run: Any, turn: int, alone: int) -> int:
    """Take the next free piece and return its number; `alone` if there is one thread."""
    return fetch_add(run.counters, LINE * turn) if run.threads > 1 else alone


@inner
def piece_end(index: int, panels: int, few: int, size: int) -> int:
    """End of piece `index`, which includes a rest of less than `few` panels; 0 for no piece."""
    first = index * size
    if panels - first < few:
        return 0
    return panels if panels - first - size < few else first + size


@inner
def in_order(rows: int, x: Any, matrix: int, out: Any) -> Any:
    """Return the inputs of a product in the order of its weights: x, or `out` with its rows permuted."""
    product = product_at(matrix)
    if product.order == 0:
        return x
    for r in range(rows):
        gather(x.at + 4 * r * x.row, product.order, out.at + 4 * r * out.row, product.inputs)
    return out


@inner
def multiply_shared(run: Any, x: Any, matrix: int, y: Any, cap: np.float32) -> None:
    """y = x W^T + b; with a cap y = cap * tanh(y / cap)."""
    panels, few, turn = product_at(matrix).panels, min_panels(matrix), next_turn(run)
    size, index = piece_size(panels, few, run.threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, few, size)
    while last:
        first = index * size
        multiply(run.rows, x, matrix, y, first, last)
        if cap > 0.0:
            for r in range(run.rows):
                cap_vector(y.at + 4 * (r * y.row + first * LANES), (last - first) * LANES, cap)
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, few, size)


@inner
def gate_panels(matrix: int, activation: int) -> int:
    """Panels of the values between the products of an MLP, of which `matrix` is the first."""
    panels: int = product_at(matrix).panels
    return panels if activation >= UNGATED_GELU else panels // 2


@inner
def gated_piece(rows: int, x: Any, matrix: int, activation: int, curve: int, y: Any, first: int, last: int) -> None:
    """Panels `first`, ..., `last` - 1 of y = gate(x G^T, x U^T), or y = activation(x U^T), for one thread.

    `activation` is a code of `activations.CODES`, `curve` as in `activations.xielu`; `matrix` is G, if any, then U.
    """
    panels, ungated = gate_panels(matrix, activation), activation >= UNGATED_GELU
    multiply(rows, x, matrix, y, first, last)
    if not ungated:
        multiply(rows, x, matrix, y, panels + first, panels + last)
    for r in range(rows):
        gate = y.at + 4 * (r * y.row + first * LANES)
        if ungated:
            activate(activation, gate, (last - first) * LANES, curve)
        else:
            gate_by(activation, gate, gate + 4 * panels * LANES, (last - first) * LANES)
