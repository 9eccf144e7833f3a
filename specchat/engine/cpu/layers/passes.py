"""The steps that layers of all kinds have, and the head, run by one thread or by several at once.

A pass computes the same as `reference/`, with other orders of sums. Each function is called by its address.
"""

from typing import Any

import numpy as np

from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import (
    OPERATION,
    add_at,
    gated_at,
    head_at,
    multiply_at,
    normalise_at,
    product_at,
)
from specchat.engine.cpu.primitives.rowwise import (
    add_scaled,
    centre,
    copy_vector,
    fill,
    multiply_by_entry,
    norm,
)
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.products import RowSpan, min_panels, multiply
from specchat.engine.cpu.products.shared import (
    NO_CAP,
    barrier,
    gate_panels,
    gated_piece,
    in_order,
    multiply_shared,
    next_piece,
    next_turn,
    piece_end,
    piece_size,
)
from specchat.engine.memory.vectors import LANES


@by_address(OPERATION)
def keep_states(run: Any, index: int) -> None:
    """Keep the hidden states after `index` layers, if wanted: other threads only read x until the next barrier."""
    if run.thread or not run.kept or word(run.kept, index) < 0:
        return
    slot, size = word(run.kept, index), run.hidden
    state = run.states + 4 * size * (slot * run.states_rows + run.start)
    tree_state = run.tree_states + 4 * size * (slot * run.tree_rows + run.scratch_row)
    for r in range(run.rows):
        copy_vector(run.x + 4 * r * size, (state if run.scratch_row < 0 else tree_state) + 4 * r * size, size)
    if run.scratch_row == 0 and word(run.spans, 0) == 0:
        copy_vector(run.x, state, size)


@inner
def normed(run: Any, weight: int, count: int, eps: Any) -> Any:
    """Rows of x through a norm, if any, each thread's own; the norm is as in NORMALISE."""
    if not weight:
        return RowSpan(run.x, run.hidden)
    for r in range(run.rows):
        x, out = run.x + 4 * r * run.hidden, run.normed + 4 * r * run.own_row
        if count:
            centre(x, out, run.hidden, count)
            fill(out, count, run.hidden, np.float32(0.0))
            x = out
        norm(x, weight, out, run.hidden, eps)
    return RowSpan(run.normed, run.own_row)


@by_address(OPERATION)
def normalise(run: Any, own: int) -> None:
    """Let the inputs of products be rows of x by a NORMALISE."""
    of = normalise_at(own)
    x = normed(run, of.weight, of.count, of.eps)
    run.input, run.input_row = x.at, x.row


@by_address(OPERATION)
def multiply_rows(run: Any, own: int) -> None:
    """Put a product into rows of `wide` by a MULTIPLY."""
    of = multiply_at(own)
    x = RowSpan(run.input, run.input_row)
    if of.source >= 0:
        x = RowSpan(run.wide + 4 * of.source, run.wide_row)
    x = in_order(run.rows, x, of.matrix, RowSpan(run.scratch, run.own_row))
    multiply_shared(run, x, of.matrix, RowSpan(run.wide + 4 * of.out, run.wide_row), NO_CAP)
    if of.meets:
        barrier(run)


@by_address(OPERATION)
def gated_product(run: Any, own: int) -> None:
    """Put the values between an MLP's products into rows of `wide` by a GATED; threads meet at a barrier."""
    of = gated_at(own)
    x = in_order(run.rows, RowSpan(run.input, run.input_row), of.matrix, RowSpan(run.scratch, run.own_row))
    y = RowSpan(run.wide, run.wide_row)
    panels, few, turn = gate_panels(of.matrix, of.activation), min_panels(of.matrix), next_turn(run)
    size, index = piece_size(panels, few, run.threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, few, size)
    while last:
        gated_piece(run.rows, x, of.matrix, of.activation, of.curve, y, index * size, last)
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, few, size)
    barrier(run)


@by_address(OPERATION)
def add_product(run: Any, own: int) -> None:
    """x = x + factor * (y W^T + b) by an ADD, y in rows of `wide`; threads meet at a barrier."""
    of, scratch, hidden = add_at(own), RowSpan(run.scratch, run.own_row), run.hidden
    matrix, factor = of.matrix, of.factor
    y = in_order(run.rows, RowSpan(run.wide + 4 * of.source, run.wide_row), matrix, RowSpan(run.normed, run.own_row))
    panels, few, turn = product_at(matrix).panels, min_panels(matrix), next_turn(run)
    size, index = piece_size(panels, few, run.threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, few, size)
    while last:
        first = index * size
        multiply(run.rows, y, matrix, scratch, first, last)
        begin, stop = first * LANES, min(last * LANES, hidden)
        for r in range(run.rows):
            update = scratch.at + 4 * (r * scratch.row + begin)
            add_scaled(update, run.x + 4 * (r * hidden + begin), stop - begin, factor)
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, few, size)
    barrier(run)


@by_address(OPERATION)
def add(run: Any, own: int) -> None:
    """x = x + factor * post(y) by an ADD, y in rows of `wide`; threads meet at a barrier."""
    of, hidden = add_at(own), run.hidden
    for r in range(run.thread, run.rows, run.threads):
        update = run.wide + 4 * (r * run.wide_row + of.source)
        if of.post:
            norm(update, of.post, run.scratch, hidden, of.eps)
            update = run.scratch
        add_scaled(update, run.x + 4 * r * hidden, hidden, of.factor)
    barrier(run)


@by_address(OPERATION)
def scale(run: Any, own: int) -> None:
    """x = x * the float32 at address `own`; threads meet at a barrier."""
    for r in range(run.thread, run.rows, run.threads):
        multiply_by_entry(run.x + 4 * r * run.hidden, run.hidden, own, 0)
    barrier(run)


@by_address(OPERATION)
def head(run: Any, own: int) -> None:
    """Write logits of the rows of a pass by a HEAD."""
    last = head_at(own)
    x = normed(run, last.norm, last.count, last.eps)
    multiply_shared(run, x, last.matrix, RowSpan(last.logits, last.logits_row), last.cap)


KEEP_STATES, NORMALISE, MULTIPLY, GATED, ADD_PRODUCT, ADD, SCALE, HEAD = map(
    code_address, (keep_states, normalise, multiply_rows, gated_product, add_product, add, scale, head)
)
"""Addresses of the functions."""
