"""Gated DeltaNet in the compiled pass: key heads with their value heads are pieces that threads take in turn.

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
from specchat.engine.cpu.primitives.atomics import code_address, put_word, word
from specchat.engine.cpu.primitives.records import OPERATION, delta_at, product_at
from specchat.engine.cpu.primitives.rowwise import copy_vector, gate_silu, multiply_vector, norm
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.products import RowSpan, multiply
from specchat.engine.cpu.products.shared import barrier, next_piece, next_turn
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.state_log import BASE, FOLD, TIP


@inner
def entry_at(delta: Any, head: int, position: int) -> int:
    """Address of the entry of a key head at a position."""
    entry_of = position % delta.held * delta.key_heads + head
    found: int = delta.entries + 4 * entry_of * delta.entry
    return found


@inner
def decays_at(delta: Any) -> int:
    """Bytes from an entry to its decays."""
    before: int = 3 * delta.key_dim + 2 * delta.sharing * delta.value_dim
    return 4 * before


@inner
def replay(delta: Any, head: int, shared: int, state: int, column: int, wide: int, first: int, last: int) -> None:
    """Advance `wide` vectors of columns from `column` on of a state from before position `first` to before `last`.

    `state` is their address; the value head is number `shared` of those that share the key head.
    """
    rows, row = delta.key_dim, delta.value_dim
    for position in range(first, last):
        key = entry_at(delta, head, position)
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
def bring(delta: Any, head: int, start: int) -> None:
    """Bring the states of a key head's value heads to the start of a pass, and fold entries as planned."""
    positions = delta.positions
    base, tip, fold = word(positions, BASE), word(positions, TIP), word(positions, FOLD)
    rows, row, sharing = delta.key_dim, delta.value_dim, delta.sharing
    for shared in range(sharing):
        first = delta.states + 4 * (head * sharing + shared) * rows * row
        before = first + 4 * delta.key_heads * sharing * rows * row
        since = tip
        if tip < base or tip > start:
            since = base
            copy_vector(first, before, rows * row)
        column = 0
        while column < row:
            wide = columns_from(delta, column)
            columns = 4 * column * rows
            replay(delta, head, shared, before + columns, column, wide, since, start)
            if base < fold <= start:
                replay(delta, head, shared, first + columns, column, wide, base, fold)
            column += wide * LANES


@inner
def begin_row(delta: Any, head: int, position: int, own: int, gates: int, room: int) -> None:
    """Convolve a row's queries, keys and values in place, and write its entry but for the updates.

    `own` is the address of the row's channels, `gates` that of its decays; `room` has the channels of a key head.
    """
    heads, sharing = delta.key_heads, delta.sharing
    keys, values = delta.key_dim, sharing * delta.value_dim
    size = 2 * keys + values
    query, key = own + 4 * head * keys, own + 4 * (heads + head) * keys
    value = own + 4 * (2 * heads * keys + head * values)
    to = entry_at(delta, head, position)
    inputs = to + 4 * (keys + values)
    copy_vector(query, inputs, keys)
    copy_vector(key, inputs + 4 * keys, keys)
    copy_vector(value, inputs + 8 * keys, values)
    copy_numbers(gates + 4 * head * sharing, to + decays_at(delta), sharing)
    taps = delta.taps
    weights = delta.weights + 4 * head * taps * size
    copy_vector(inputs, room, size)
    multiply_vector(weights + 4 * (taps - 1) * size, room, size)
    for back in range(1, min(taps, position + 1)):
        earlier = entry_at(delta, head, position - back) + 4 * (keys + values)
        add_products(earlier, weights + 4 * (taps - 1 - back) * size, room, size)
    activate(room, size)
    eps = delta.length_eps
    norm(room, delta.query_length, query, keys, eps)
    norm(room + 4 * keys, delta.key_length, key, keys, eps)
    copy_vector(key, to, keys)
    copy_vector(room + 8 * keys, value, values)


@inner
def run_rows(
    delta: Any, head: int, shared: int, start: int, position: int, rows: int, own: int, own_row: int, state: int
) -> None:
    """Step value head `shared` of a key head over rows from `position` on; outputs replace the values.

    `own` is the address of the first row's channels, `state` has room for TOGETHER vectors of columns.
    """
    heads, sharing = delta.key_heads, delta.sharing
    keys, row = delta.key_dim, delta.value_dim
    value_head = head * sharing + shared
    first = delta.states + 4 * value_head * keys * row
    before = first + 4 * heads * sharing * keys * row
    base, fold = word(delta.positions, BASE), word(delta.positions, FOLD)
    write = 4 * (delta.mixed + value_head)
    decay = write + 4 * LANES * (product_at(delta.gates).panels // 2)
    column = 0
    while column < row:
        wide = columns_from(delta, column)
        columns, size = 4 * column * keys, wide * LANES * keys
        copy_vector(before + columns, state, size)
        replay(delta, head, shared, state, column, wide, start, position)
        for i in range(rows):
            if position + i == fold and fold > base and fold > start:
                copy_vector(state, first + columns, size)
            at = own + 4 * i * own_row
            query, key = at + 4 * head * keys, at + 4 * (heads + head) * keys
            value = at + 4 * (2 * heads * keys + value_head * row + column)
            update = entry_at(delta, head, position + i) + 4 * (keys + shared * row + column)
            if wide == TOGETHER:
                step(TOGETHER, state, keys, key, query, at + write, at + decay, value, update)
            else:
                step(1, state, keys, key, query, at + write, at + decay, value, update)
        column += wide * LANES


@by_address(OPERATION)
def delta_layer(run: Any, own: int) -> None:
    """Run the states of a DELTA over rows of `wide`, which begin with outputs of the first product; results replace z.

    Threads may still be at that product; they meet at two barriers. `room` has `state_need.room` elements. It is
    called by its address, so only a model with such layers has it compiled.
    """
    delta = delta_at(own)
    start, y, y_row, tree_scratch, scratch_row = run.start, run.wide, run.wide_row, delta.tree_scratch, run.scratch_row
    gates, panels = delta.gates, product_at(delta.gates).panels
    mixed, heads, sharing = delta.mixed, delta.key_heads, delta.sharing
    begun, ended = run.rows * run.thread // run.threads, run.rows * (run.thread + 1) // run.threads
    if begun < ended:
        first = y + 4 * (begun * y_row + mixed)
        x = RowSpan(run.input + 4 * begun * run.input_row, run.input_row)
        multiply(ended - begun, x, gates, RowSpan(first, y_row), 0, panels)
        padded = -(-heads * sharing // LANES) * LANES
        for r in range(ended - begun):
            write = first + 4 * r * y_row
            decay = write + 4 * LANES * (panels // 2)
            open_gates(write, decay, delta.rates, delta.shifts, padded)
    barrier(run)

    size, value_size = delta.entry, delta.value_dim
    state = run.room + 4 * size
    channels = delta.channels
    turn = next_turn(run)
    head = next_piece(run, turn, 0)
    while head < heads:
        bring(delta, head, start)
        row = 0
        for span in range(run.span_count):
            position, length = start + word(run.spans, 4 * span), word(run.spans, 4 * span + 1)
            first, last = word(run.spans, 4 * span + 2), word(run.spans, 4 * span + 3)
            for i in range(first, last):
                node = tree_scratch + 4 * size * (word(run.ancestors, i) * heads + head)
                copy_vector(node, entry_at(delta, head, position - last + i), size)
            rows = y + 4 * row * y_row
            for i in range(length):
                at = rows + 4 * i * y_row
                begin_row(delta, head, position + i, at, at + 4 * (mixed + LANES * (panels // 2)), run.room)
            for shared in range(sharing):
                run_rows(delta, head, shared, start, position, length, rows, y_row, state)
            for i in range(length):
                for value_head in range(head * sharing, (head + 1) * sharing):
                    z = rows + 4 * (i * y_row + channels + value_head * value_size)
                    out = z - 4 * heads * sharing * value_size
                    norm(out, delta.norm, out, value_size, delta.eps)
                    gate_silu(z, out, value_size)
                if scratch_row >= 0:
                    node = tree_scratch + 4 * size * ((scratch_row + row + i) * heads + head)
                    copy_vector(entry_at(delta, head, position + i), node, size)
            row += length
        head = next_piece(run, turn, head + 1)
    barrier(run)
    if run.thread == 0:
        positions = delta.positions
        put_word(positions, TIP, start)
        put_word(positions, BASE, max(word(positions, BASE), word(positions, FOLD)))


ADDRESS = code_address(delta_layer)
"""Address of `delta_layer`."""
