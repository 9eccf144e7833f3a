"""Recurrent states in the compiled pass: key heads with some of their value heads are pieces that threads take in turn.

States before a pass are made again from the log, and rows take the step form one after another. A row of a tree goes
on from the entries of its ancestors, which stand right before its position. A state is held by columns that are
computed together, so that these are side by side.
"""

from typing import Any

from specchat.engine.cpu.layers.recurrent import (
    TOGETHER,
    activate,
    add_products,
    advance,
    copy_numbers,
    open_gates,
    step,
)
from specchat.engine.cpu.primitives.activations import gate_silu
from specchat.engine.cpu.primitives.atomics import code_address, put_word, word
from specchat.engine.cpu.primitives.records import OPERATION, delta_at, product_at
from specchat.engine.cpu.primitives.rowwise import copy_vector, multiply_vector, norm
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.products import RowSpan, multiply
from specchat.engine.cpu.products.shared import barrier, next_piece, next_turn
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.state_log import BASE, FOLD, TIP


@inner
def entry_at(delta: Any, piece: int, position: int) -> int:
    """Address of the entry of a piece at a position."""
    entry_of = position % delta.held * delta.pieces + piece
    found: int = delta.entries + 4 * entry_of * delta.entry
    return found


@inner
def decays_at(delta: Any) -> int:
    """Bytes from an entry to its decays."""
    before: int = 3 * delta.key_dim + 2 * delta.sharing * delta.value_dim
    return 4 * before


@inner
def replay(delta: Any, piece: int, shared: int, state: int, column: int, wide: int, first: int, last: int) -> None:
    """Advance `wide` vectors of columns from `column` on of a state from before position `first` to before `last`.

    `state` is their address; the value head is number `shared` of the piece's.
    """
    rows, row = delta.key_dim, delta.value_dim
    for position in range(first, last):
        key = entry_at(delta, piece, position)
        update = key + 4 * (rows + shared * row + column)
        decay = key + decays_at(delta) + 4 * shared
        if wide == TOGETHER:
            advance(TOGETHER, state, rows, key, update, decay)
        else:
            advance(1, state, rows, key, update, decay)


@inner
def columns_from(delta: Any, column: int) -> int:
    """Vectors of columns to compute together from a column on."""
    left: int = delta.value_dim - column
    return TOGETHER if left >= TOGETHER * LANES else 1


@inner
def bring(delta: Any, piece: int, start: int) -> None:
    """Bring the states of a piece to the start of a pass, and fold entries as planned."""
    positions = delta.positions
    base, tip, fold = word(positions, BASE), word(positions, TIP), word(positions, FOLD)
    rows, row, sharing = delta.key_dim, delta.value_dim, delta.sharing
    for shared in range(sharing):
        first = delta.states + 4 * (piece * sharing + shared) * rows * row
        before = first + 4 * delta.pieces * sharing * rows * row
        since = tip
        if tip < base or tip > start:
            since = base
            copy_vector(first, before, rows * row)
        column = 0
        while column < row:
            wide = columns_from(delta, column)
            columns = 4 * column * rows
            replay(delta, piece, shared, before + columns, column, wide, since, start)
            if base < fold <= start:
                replay(delta, piece, shared, first + columns, column, wide, base, fold)
            column += wide * LANES


@inner
def begin_row(delta: Any, piece: int, position: int, own: int, room: int) -> None:
    """Convolve a row's values in place, and its query and key to `convolved`; write its entry but for the updates.

    `own` is the address of the row; `room` has the channels of a piece.
    """
    sharing, keys = delta.sharing, delta.key_dim
    values, of_key = sharing * delta.value_dim, piece // delta.parts * keys
    size = 2 * keys + values
    value = own + 4 * (delta.value + piece * values)
    to = entry_at(delta, piece, position)
    inputs = to + 4 * (keys + values)
    copy_vector(own + 4 * (delta.query + of_key), inputs, keys)
    copy_vector(own + 4 * (delta.key + of_key), inputs + 4 * keys, keys)
    copy_vector(value, inputs + 8 * keys, values)
    copy_numbers(own + 4 * (delta.decays + piece * sharing), to + decays_at(delta), sharing)
    taps = delta.taps
    weights = delta.weights + 4 * piece * taps * size
    if delta.bias:
        copy_vector(delta.bias + 4 * piece * size, room, size)
        add_products(inputs, weights + 4 * (taps - 1) * size, room, size)
    else:
        copy_vector(inputs, room, size)
        multiply_vector(weights + 4 * (taps - 1) * size, room, size)
    for back in range(1, min(taps, position + 1)):
        earlier = entry_at(delta, piece, position - back) + 4 * (keys + values)
        add_products(earlier, weights + 4 * (taps - 1 - back) * size, room, size)
    activate(room, size)
    query = own + 4 * (delta.convolved + 2 * piece * keys)
    key = query + 4 * keys
    if delta.skip:
        copy_vector(room, query, 2 * keys)
    else:
        norm(room, delta.query_length, query, keys, delta.length_eps)
        norm(room + 4 * keys, delta.key_length, key, keys, delta.length_eps)
    copy_vector(key, to, keys)
    copy_vector(room + 8 * keys, value, values)


@inner
def run_rows(delta: Any, piece: int, shared: int, start: int, position: int, rows: int, y: Any, state: int) -> None:
    """Step value head `shared` of a piece over rows from `position` on, a `RowSpan`; outputs replace the values.

    `state` has room for TOGETHER vectors of columns.
    """
    keys, row = delta.key_dim, delta.value_dim
    value_head = piece * delta.sharing + shared
    first = delta.states + 4 * value_head * keys * row
    before = first + 4 * delta.pieces * delta.sharing * keys * row
    base, fold = word(delta.positions, BASE), word(delta.positions, FOLD)
    write, decay = 4 * (delta.writes + value_head), 4 * (delta.decays + value_head)
    skip = delta.skip
    if skip:
        skip += 4 * value_head
    column = 0
    while column < row:
        wide = columns_from(delta, column)
        columns, size = 4 * column * keys, wide * LANES * keys
        copy_vector(before + columns, state, size)
        replay(delta, piece, shared, state, column, wide, start, position)
        for i in range(rows):
            if position + i == fold and fold > base and fold > start:
                copy_vector(state, first + columns, size)
            at = y.at + 4 * i * y.row
            query = at + 4 * (delta.convolved + 2 * piece * keys)
            key = query + 4 * keys
            value = at + 4 * (delta.value + value_head * row + column)
            update = entry_at(delta, piece, position + i) + 4 * (keys + shared * row + column)
            if wide == TOGETHER:
                step(TOGETHER, state, keys, key, query, at + write, at + decay, value, update, skip)
            else:
                step(1, state, keys, key, query, at + write, at + decay, value, update, skip)
        column += wide * LANES


@inner
def begin_gates(run: Any, delta: Any, begun: int, ended: int) -> None:
    """Make the gates of rows `begun`, ..., `ended` - 1."""
    row = 4 * run.wide_row
    first, heads = run.wide + begun * row, -(-delta.pieces * delta.sharing // LANES) * LANES
    writes, decays = first + 4 * delta.writes, first + 4 * delta.decays
    if delta.gates:
        x = RowSpan(run.input + 4 * begun * run.input_row, run.input_row)
        panels = product_at(delta.gates).panels
        multiply(ended - begun, x, delta.gates, RowSpan(writes, run.wide_row), 0, panels)
        for r in range(ended - begun):
            open_gates(1, writes + r * row, decays + r * row, delta.rates, delta.shifts, heads)
    else:
        for r in range(ended - begun):
            open_gates(0, writes + r * row, decays + r * row, delta.rates, delta.shifts, heads)


@inner
def end_heads(delta: Any, own: int, first: int, last: int) -> None:
    """Replace z of value heads `first`, ..., `last` - 1 of a row at address `own` by norm(y) silu(z)."""
    size = delta.value_dim
    for head in range(first, last):
        y, z = own + 4 * (delta.value + head * size), own + 4 * (delta.z + head * size)
        norm(y, delta.norm, y, size, delta.eps)
        gate_silu(z, y, size)


@inner
def end_row(delta: Any, own: int) -> None:
    """Replace z of a row at address `own` by norm(y silu(z)), the norm being over the value heads of a key head."""
    size = delta.parts * delta.sharing * delta.value_dim
    for head in range(delta.pieces // delta.parts):
        z = own + 4 * (delta.z + head * size)
        gate_silu(z, own + 4 * (delta.value + head * size), size)
        norm(z, delta.norm + 4 * head * size, z, size, delta.eps)


@by_address(OPERATION)
def delta_layer(run: Any, own: int) -> None:
    """Run the states of a DELTA over rows of `wide`, which begin with outputs of the first product; results replace z.

    Threads may still be at that product; they meet at barriers. `room` has `state_need.room` elements. It is called by
    its address, so only a model with such layers has it compiled.
    """
    delta = delta_at(own)
    start, y, y_row, tree_scratch, scratch_row = run.start, run.wide, run.wide_row, delta.tree_scratch, run.scratch_row
    pieces, sharing = delta.pieces, delta.sharing
    begun, ended = run.rows * run.thread // run.threads, run.rows * (run.thread + 1) // run.threads
    if begun < ended:
        begin_gates(run, delta, begun, ended)
    barrier(run)

    size = delta.entry
    state = run.room + 4 * size
    turn = next_turn(run)
    piece = next_piece(run, turn, 0)
    while piece < pieces:
        bring(delta, piece, start)
        row = 0
        for span in range(run.span_count):
            position, length = start + word(run.spans, 4 * span), word(run.spans, 4 * span + 1)
            first, last = word(run.spans, 4 * span + 2), word(run.spans, 4 * span + 3)
            for i in range(first, last):
                node = tree_scratch + 4 * size * (word(run.ancestors, i) * pieces + piece)
                copy_vector(node, entry_at(delta, piece, position - last + i), size)
            rows = y + 4 * row * y_row
            for i in range(length):
                begin_row(delta, piece, position + i, rows + 4 * i * y_row, run.room)
            for shared in range(sharing):
                run_rows(delta, piece, shared, start, position, length, RowSpan(rows, y_row), state)
            for i in range(length):
                if delta.skip == 0:
                    end_heads(delta, rows + 4 * i * y_row, piece * sharing, (piece + 1) * sharing)
                if scratch_row >= 0:
                    node = tree_scratch + 4 * size * ((scratch_row + row + i) * pieces + piece)
                    copy_vector(entry_at(delta, piece, position + i), node, size)
            row += length
        piece = next_piece(run, turn, piece + 1)
    barrier(run)
    if delta.skip:
        for r in range(begun, ended):
            end_row(delta, y + 4 * r * y_row)
        barrier(run)
    if run.thread == 0:
        positions = delta.positions
        put_word(positions, TIP, start)
        put_word(positions, BASE, max(word(positions, BASE), word(positions, FOLD)))


ADDRESS = code_address(delta_layer)
"""Address of `delta_layer`."""
