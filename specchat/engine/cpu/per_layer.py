"""Inputs of each layer by token: made before the first layer, and added at the end of each."""

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import code_address, word
from specchat.engine.cpu.gates import gate_by
from specchat.engine.cpu.layer_inputs import EMBEDDED, EPS, MADE, MADE_ROW, NORM, PRODUCT, ROWS, SIZE, WIDTH
from specchat.engine.cpu.products import COLUMNS, PANELS, min_panels, multiply
from specchat.engine.cpu.rowwise import add_vector, norm
from specchat.engine.cpu.signatures import ADD_INPUT, MAKE_INPUTS
from specchat.engine.cpu.simd import by_address
from specchat.engine.cpu.softmax import entry
from specchat.engine.cpu.together import NO_CAP, add_product, barrier, next_piece, piece_end, piece_size, product
from specchat.engine.memory.vectors import LANES


@by_address(types.void(*MAKE_INPUTS))
def make_inputs(
    rows: int, inputs: int, hidden: int, kernels: int, extras: int, counters: int, which: int, thread: int, threads: int
) -> None:
    """Fill the inputs of all layers for a pass's rows, as in `recipe.PerLayer`; threads meet at two barriers.

    `inputs` is the address of a description (`layer_inputs.py`).
    """
    width, size, made_row = word(inputs, WIDTH), word(inputs, SIZE), word(inputs, MADE_ROW)
    made, embedded, eps = word(inputs, MADE), word(inputs, EMBEDDED), entry(word(inputs, EPS), 0)
    matrix = word(inputs, PRODUCT)
    product(rows, embedded, hidden, matrix, kernels, extras, made, made_row, NO_CAP, counters, which, threads)
    passed = barrier(counters, 0, threads)
    for r in range(thread, rows, threads):
        for begin in range(0, width, size):
            place = made + 4 * (r * made_row + begin)
            norm(place, word(inputs, NORM), place, size, eps)
            add_vector(word(inputs, ROWS) + 4 * (r * width + begin), place, size)
    barrier(counters, passed, threads)


@by_address(types.void(*ADD_INPUT))
def add_input(
    rows: int,
    inputs: int,
    layer: int,
    matrix: int,
    activation: int,
    kernels: int,
    extras: int,
    x: int,
    hidden: int,
    post: int,
    eps: np.float32,
    wide: int,
    wide_row: int,
    own: int,
    own_row: int,
    counters: int,
    which: int,
    passed: int,
    thread: int,
    threads: int,
) -> None:
    """x = x + norm(down(gate(x) by the layer's input)), x float32 [rows, hidden], as in `recipe.LayerInput`.

    Threads meet at three barriers; before, they have `passed` some. They take pieces by the counters `which` and the
    next. Before the first piece all have written what they add to x. `matrix` is the address of the gate's row in the
    table of products, which that of down follows; the rest is as in `together.add_product`.
    """
    size, made_row = word(inputs, SIZE), word(inputs, MADE_ROW)
    mine, panels, few = word(inputs, MADE) + 4 * layer * size, word(matrix, PANELS), min_panels(matrix, kernels)
    piece, index = piece_size(panels, few, threads), next_piece(counters, which, threads, 0)
    last = piece_end(index, panels, few, piece)
    while last:
        first = index * piece
        multiply(rows, x, hidden, matrix, kernels, extras, wide, wide_row, first, last)
        begin, stop = first * LANES, min(last * LANES, size)
        for r in range(rows):
            gate_by(
                activation, wide + 4 * (r * wide_row + begin), mine + 4 * (r * made_row + begin), max(0, stop - begin)
            )
        index = next_piece(counters, which, threads, index + 1)
        last = piece_end(index, panels, few, piece)
    passed = barrier(counters, passed, threads)
    down = matrix + 8 * COLUMNS
    add_product(
        rows, wide, wide_row, down, kernels, extras, x, hidden, np.float32(1.0), post, eps, own, own_row, counters,
        which + 1, passed, thread, threads,
    )  # fmt: skip


ADDRESSES = code_address(make_inputs), code_address(add_input)
