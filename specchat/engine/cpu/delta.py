"""Gated DeltaNet in the compiled pass: key heads with their value heads are pieces that threads take in turn.

States before a pass are made again from the log, and rows take the step form one after another. A row of a tree goes
on from the entries of its ancestors, which stand right before its position. A state is held by columns that are
computed together, so that these are side by side.
"""

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import code_address, put_word, word
from specchat.engine.cpu.deltas import (
    CHANNELS,
    ENTRIES,
    ENTRY,
    GATES,
    HELD,
    KEY_DIM,
    KEY_HEADS,
    KEY_LENGTH,
    LENGTH_EPS,
    MIXED,
    NORM,
    POSITIONS,
    QUERY_LENGTH,
    RATES,
    SHARING,
    SHIFTS,
    STATES,
    TAPS,
    VALUE_DIM,
    WEIGHTS,
)
from specchat.engine.cpu.gates import gate_silu
from specchat.engine.cpu.products import PANELS, multiply
from specchat.engine.cpu.recurrent import (
    TOGETHER,
    activate,
    add_products,
    advance,
    copy_numbers,
    open_gates,
    step,
)
from specchat.engine.cpu.rowwise import copy_vector, multiply_vector, norm
from specchat.engine.cpu.signatures import DELTA
from specchat.engine.cpu.simd import by_address, inner
from specchat.engine.cpu.softmax import entry
from specchat.engine.cpu.together import barrier, next_piece
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.state_log import BASE, FOLD, TIP


@inner
def place(delta: int, head: int, position: int) -> int:
    """Address of the entry of a key head at a position."""
    entry_of = position % word(delta, HELD) * word(delta, KEY_HEADS) + head
    found: int = word(delta, ENTRIES) + 4 * entry_of * word(delta, ENTRY)
    return found


@inner
def decays_at(delta: int) -> int:
    """Bytes from an entry to its decays."""
    before: int = 3 * word(delta, KEY_DIM) + 2 * word(delta, SHARING) * word(delta, VALUE_DIM)
    return 4 * before


@inner
def replay(delta: int, head: int, shared: int, state: int, column: int, wide: int, first: int, last: int) -> None:
    """Advance `wide` vectors of columns from `column` on of a state from before position `first` to before `last`.

    `state` is their address; the value head is number `shared` of those that share the key head.
    """
    rows, row = word(delta, KEY_DIM), word(delta, VALUE_DIM)
    for position in range(first, last):
        key = place(delta, head, position)
        update = key + 4 * (rows + shared * row + column)
        decay = key + decays_at(delta) + 4 * shared
        if wide == TOGETHER:
            advance(TOGETHER, state, rows, key, update, decay)
        else:
            advance(1, state, rows, key, update, decay)


@inner
def columns_from(delta: int, column: int) -> int:
    """Vectors of columns to compute together from a column on."""
    left: int = word(delta, VALUE_DIM) - column
    return TOGETHER if left >= TOGETHER * LANES else 1


@inner
def bring(delta: int, head: int, start: int) -> None:
    """Bring the states of a key head's value heads to the start of a pass, and fold entries as planned."""
    positions = word(delta, POSITIONS)
    base, tip, fold = word(positions, BASE), word(positions, TIP), word(positions, FOLD)
    rows, row, sharing = word(delta, KEY_DIM), word(delta, VALUE_DIM), word(delta, SHARING)
    for shared in range(sharing):
        first = word(delta, STATES) + 4 * (head * sharing + shared) * rows * row
        before = first + 4 * word(delta, KEY_HEADS) * sharing * rows * row
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
def begin_row(delta: int, head: int, position: int, own: int, gates: int, room: int) -> None:
    """Convolve a row's queries, keys and values in place, and write its entry but for the updates.

    `own` is the address of the row's channels, `gates` that of its decays; `room` has the channels of a key head.
    """
    heads, sharing = word(delta, KEY_HEADS), word(delta, SHARING)
    keys, values = word(delta, KEY_DIM), sharing * word(delta, VALUE_DIM)
    size = 2 * keys + values
    query, key = own + 4 * head * keys, own + 4 * (heads + head) * keys
    value = own + 4 * (2 * heads * keys + head * values)
    to = place(delta, head, position)
    inputs = to + 4 * (keys + values)
    copy_vector(query, inputs, keys)
    copy_vector(key, inputs + 4 * keys, keys)
    copy_vector(value, inputs + 8 * keys, values)
    copy_numbers(gates + 4 * head * sharing, to + decays_at(delta), sharing)
    taps = word(delta, TAPS)
    weights = word(delta, WEIGHTS) + 4 * head * taps * size
    copy_vector(inputs, room, size)
    multiply_vector(weights + 4 * (taps - 1) * size, room, size)
    for back in range(1, min(taps, position + 1)):
        earlier = place(delta, head, position - back) + 4 * (keys + values)
        add_products(earlier, weights + 4 * (taps - 1 - back) * size, room, size)
    activate(room, size)
    eps = entry(word(delta, LENGTH_EPS), 0)
    norm(room, word(delta, QUERY_LENGTH), query, keys, eps)
    norm(room + 4 * keys, word(delta, KEY_LENGTH), key, keys, eps)
    copy_vector(key, to, keys)
    copy_vector(room + 8 * keys, value, values)


@inner
def run_rows(
    delta: int, head: int, shared: int, start: int, position: int, rows: int, own: int, own_row: int, state: int
) -> None:
    """Step value head `shared` of a key head over rows from `position` on; outputs replace the values.

    `own` is the address of the first row's channels, `state` has room for TOGETHER vectors of columns.
    """
    heads, sharing = word(delta, KEY_HEADS), word(delta, SHARING)
    keys, row = word(delta, KEY_DIM), word(delta, VALUE_DIM)
    value_head = head * sharing + shared
    first = word(delta, STATES) + 4 * value_head * keys * row
    before = first + 4 * heads * sharing * keys * row
    base, fold = word(word(delta, POSITIONS), BASE), word(word(delta, POSITIONS), FOLD)
    write = 4 * (word(delta, MIXED) + value_head)
    decay = write + 4 * LANES * (word(word(delta, GATES), PANELS) // 2)
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
            update = place(delta, head, position + i) + 4 * (keys + shared * row + column)
            if wide == TOGETHER:
                step(TOGETHER, state, keys, key, query, at + write, at + decay, value, update)
            else:
                step(1, state, keys, key, query, at + write, at + decay, value, update)
        column += wide * LANES


@by_address(types.void(*DELTA))
def delta_layer(
    rows: int,
    start: int,
    spans: int,
    count: int,
    ancestors: int,
    tree_scratch: int,
    scratch_row: int,
    x: int,
    x_row: int,
    delta: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    eps: np.float32,
    room: int,
    counters: int,
    which: int,
    passed: int,
    thread: int,
    threads: int,
) -> None:
    """Run a layer's states over rows of y, which begin with outputs of its first product; results replace z in them.

    Threads may still be at that product; they meet at two barriers. Before, they have `passed` some. It is called by
    its address, so only a model with such layers has it compiled.

    Args:
        spans, ancestors: as in `passes.layers`; `count` spans.
        tree_scratch: entries of a tree's nodes, float32 [MAX_TREE_NODES, key_heads, ENTRY].
        x: the layer's inputs, float32 rows `x_row` elements apart.
        delta: address of a row of `deltas.Deltas`.
        room: the thread's own, float32 [`state_need.room`].
    """
    gates, panels = word(delta, GATES), word(word(delta, GATES), PANELS)
    mixed, heads, sharing = word(delta, MIXED), word(delta, KEY_HEADS), word(delta, SHARING)
    begun, ended = rows * thread // threads, rows * (thread + 1) // threads
    if begun < ended:
        first = y + 4 * (begun * y_row + mixed)
        multiply(ended - begun, x + 4 * begun * x_row, x_row, gates, kernels, extras, first, y_row, 0, panels)
        padded = -(-heads * sharing // LANES) * LANES
        for r in range(ended - begun):
            write = first + 4 * r * y_row
            decay = write + 4 * LANES * (panels // 2)
            open_gates(write, decay, word(delta, RATES), word(delta, SHIFTS), padded)
    passed = barrier(counters, passed, threads)

    size, value_size = word(delta, ENTRY), word(delta, VALUE_DIM)
    state = room + 4 * size
    channels = word(delta, CHANNELS)
    head = next_piece(counters, which, threads, 0)
    while head < heads:
        bring(delta, head, start)
        row = 0
        for span in range(count):
            position, length = start + word(spans, 4 * span), word(spans, 4 * span + 1)
            first, last = word(spans, 4 * span + 2), word(spans, 4 * span + 3)
            for i in range(first, last):
                node = tree_scratch + 4 * size * (word(ancestors, i) * heads + head)
                copy_vector(node, place(delta, head, position - last + i), size)
            own = y + 4 * row * y_row
            for i in range(length):
                at = own + 4 * i * y_row
                begin_row(delta, head, position + i, at, at + 4 * (mixed + LANES * (panels // 2)), room)
            for shared in range(sharing):
                run_rows(delta, head, shared, start, position, length, own, y_row, state)
            for i in range(length):
                for value_head in range(head * sharing, (head + 1) * sharing):
                    z = own + 4 * (i * y_row + channels + value_head * value_size)
                    made = z - 4 * heads * sharing * value_size
                    norm(made, word(delta, NORM), made, value_size, eps)
                    gate_silu(z, made, value_size)
                if scratch_row >= 0:
                    node = tree_scratch + 4 * size * ((scratch_row + row + i) * heads + head)
                    copy_vector(place(delta, head, position + i), node, size)
            row += length
        head = next_piece(counters, which, threads, head + 1)
    barrier(counters, passed, threads)
    if thread == 0:
        positions = word(delta, POSITIONS)
        put_word(positions, TIP, start)
        put_word(positions, BASE, max(word(positions, BASE), word(positions, FOLD)))


ADDRESS = code_address(delta_layer)
"""Address of `delta_layer`."""
