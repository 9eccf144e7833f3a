"""Attention over the KV cache, for a few queries at a time over the same keys and values.

A query's result does not depend on the others: its sums have one order. KV entries after its own position weigh 0,
which adds nothing while values are finite.
"""

from typing import Any, NamedTuple

import numpy as np

from specchat.engine.cpu.layers.kv_entries import FEW_PANELS, KEYS, PANELS, copy_entry, dots, mix_int8, put_int8
from specchat.engine.cpu.primitives.activations import cap_vector, close_gate
from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import OPERATION, attention_at
from specchat.engine.cpu.primitives.rowwise import (
    copy_vector,
    entry,
    exponentials,
    fill,
    multiply_by,
    multiply_by_entry,
    norm,
    peak,
    put_sink,
    rotate,
    total,
)
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.shared import barrier, next_piece, next_turn
from specchat.engine.cpu.products.tiles import FLOAT32, tile
from specchat.engine.memory.vectors import LANES, QUERIES


class KvSpan(NamedTuple):
    """Addresses of keys and of values of a head."""

    keys: int
    values: int


@inner
def attend_head(run: Any, a: Any, head: int) -> None:
    """Attend with the query heads that share key-value head `head`; results replace the queries.

    Each query may have a gate after it, which is left alone. The cache holds one chain's positions, so a span
    overwrites what an earlier span left there. With shared entries rows have queries alone. `room` has
    `vectors.attention_room` elements.
    """
    size, group, kv_heads, scratch_row, held = a.size, a.heads // a.kv_heads, a.kv_heads, run.scratch_row, a.entry
    width = 4 * size
    query_row = width * (1 + a.gated)
    one, queries, until = run.room, run.room + width, run.until if a.mutual else 0
    row = 0
    for span in range(run.span_count):
        position, rows = run.start + word(run.spans, 4 * span), word(run.spans, 4 * span + 1)
        first, last = word(run.spans, 4 * span + 2), word(run.spans, 4 * span + 3)
        begun = head * a.capacity * held + (word(run.copies, span) if run.copies else 0)
        keys, values = a.keys + begun, a.values + begun
        for i in range(first, last):
            tree_entry = a.tree_scratch + held * (word(run.ancestors, i) * kv_heads + head)
            copy_entry(tree_entry, keys + held * (position - last + i), held)
            copy_entry(tree_entry + 4 * a.values_offset, values + held * (position - last + i), held)
        for i in range(rows if a.shared and scratch_row >= 0 else 0):
            # Spans that come later in the pass overwrote what the earlier layer has put there.
            tree_entry = a.tree_scratch + held * ((scratch_row + row + i) * kv_heads + head)
            copy_entry(tree_entry, keys + held * (position + i), held)
            copy_entry(tree_entry + 4 * a.values_offset, values + held * (position + i), held)
        for i in range(0 if a.shared else rows):
            key = run.wide + 4 * (row + i) * run.wide_row + query_row * kv_heads * group + width * head
            value = key + width * kv_heads
            key_entry, value_entry = keys + held * (position + i), values + held * (position + i)
            whole = one if a.block else key_entry
            if a.key_norm:
                norm(key, a.key_norm, one, size, a.eps)
                key = one
            rotate_head(a, key, position + i, whole)
            if a.late_key_norm:
                norm(whole, a.late_key_norm, whole, size, a.eps)
            if a.block:
                put_int8(whole, size, a.block, key_entry)
            if a.value_norm:
                norm(value, a.value_norm, one, size, a.eps)
                value = one
            if a.block:
                put_int8(value, size, a.block, value_entry)
            else:
                copy_vector(value, value_entry, size)
            if scratch_row >= 0:
                tree_entry = a.tree_scratch + held * ((scratch_row + row + i) * kv_heads + head)
                copy_entry(key_entry, tree_entry, held)
                copy_entry(value_entry, tree_entry + 4 * a.values_offset, held)
        done = 0
        while done < rows * group:
            together = QUERIES if rows * group - done >= QUERIES else 1
            for j in range(done, done + together):
                query = run.wide + 4 * (row + j // group) * run.wide_row + query_row * (head * group + j % group)
                own = queries + width * (j - done)
                if a.query_norm:
                    norm(query, a.query_norm, one, size, a.eps)
                    query = one
                rotate_head(a, query, position + j // group, own)
                if a.late_query_norm:
                    norm(own, a.late_query_norm, own, size, a.eps)
                if a.temper:
                    multiply_by_entry(own, size, a.temper, position + j // group)
            sinks = a.sinks + 4 * head * group if a.sinks else 0
            _attend(a, together, done, position + 1, until, sinks, queries, KvSpan(keys, values))
            for j in range(done, done + together):
                out = run.wide + 4 * (row + j // group) * run.wide_row + query_row * (head * group + j % group)
                copy_vector(queries + width * (QUERIES + j - done), out, size)
            done += together
        row += rows


@inner
def rotate_head(a: Any, x: int, position: int, out: int) -> None:
    """out = x, a head, with its first values rotated as at `position`."""
    row = 4 * a.turned * position
    rotate(x, a.cos + row, a.sin + row, out, a.turned)
    if a.turned < a.size:
        copy_vector(x + 4 * a.turned, out + 4 * a.turned, a.size - a.turned)


@inner
def _attend(a: Any, count: int, first: int, visible: int, until: int, sinks: int, queries: int, entries: Any) -> None:
    """softmax(cap(scale * query keys^T)) values for `count` queries, 1 or QUERIES of them.

    Args:
        first: index of the first query. The first group of queries attends to `visible` KV entries, the next group to
            one more, and so on; with a window to the last ones alone.
        until: of a picture, the KV entries that every query attends to instead, a window beginning as ever; else 0.
        sinks: address of float32 [group]; 0 for none.
        queries: float32 [QUERIES, size], a multiple of LANES; the results [QUERIES, size] follow, then scores
            [QUERIES, capacity + LANES].
        entries: `KvSpan` of [capacity] entries of `entry` bytes: float32 [size], or rows of an int8 cache.
    """
    keys, values = entries.keys, entries.values
    size, group, window, row = a.size, a.heads // a.kv_heads, a.window, a.capacity + LANES
    if window:
        # In whole vectors: the lane of an entry's score is the same whatever queries are together.
        before = max(0, visible + first // group - window) // LANES * LANES
        keys, values, visible = keys + a.entry * before, values + a.entry * before, visible - before
        until = until - before if until else 0
    outs = queries + 4 * QUERIES * size
    scores = outs + 4 * QUERIES * size
    most = until if until else visible + (first + count - 1) // group
    multiplied = -(-most // KEYS) * KEYS
    if a.block and count == QUERIES:
        dots(1, QUERIES, queries, keys, size, a.entry, a.block, multiplied, scores, row)
    elif a.block:
        dots(1, 1, queries, keys, size, a.entry, a.block, multiplied, scores, row)
    elif count == QUERIES:
        dots(0, QUERIES, queries, keys, size, a.entry, a.block, multiplied, scores, row)
    else:
        dots(0, 1, queries, keys, size, a.entry, a.block, multiplied, scores, row)
    padded, scale = -(-most // LANES) * LANES, a.scale
    if a.score_cap > 0.0:
        for j in range(count):
            own = scores + 4 * j * row
            multiply_by(own, padded, scale)
            cap_vector(own, padded, a.score_cap)
        scale = np.float32(1.0)
    for j in range(count):
        own = scores + 4 * j * row
        own_end = visible + (first + j) // group
        behind = until if until else own_end
        unseen = max(0, own_end - window) if window else 0
        fill(own, 0, unseen, -np.inf)
        fill(own, behind, padded, -np.inf)
        most_of = peak(own, padded)
        exponentials(own, padded, most_of, scale)
        if sinks:
            # In the spare slot after the scores.
            put_sink(sinks, (first + j) % group, most_of * scale, own, row - LANES)
        fill(own, 0, unseen, 0.0)
        fill(own, behind, padded, 0.0)
    d = 0
    if a.block:
        mix_int8(a, count, scores, row, values, most, outs)
        d = size
    while d < size:
        left = size - d >= PANELS * LANES
        if count == QUERIES and left:
            tile(FLOAT32, QUERIES, PANELS, LANES, scores, row, values + 4 * d, size, LANES, most, outs + 4 * d, size)
            d += PANELS * LANES
        elif count == 1 and size - d >= FEW_PANELS * LANES:
            tile(FLOAT32, 1, FEW_PANELS, LANES, scores, row, values + 4 * d, size, LANES, most, outs + 4 * d, size)
            d += FEW_PANELS * LANES
        else:
            for j in range(count):
                own_scores, out = scores + 4 * j * row, outs + 4 * (j * size + d)
                tile(FLOAT32, 1, 1, LANES, own_scores, row, values + 4 * d, size, LANES, most, out, size)
            d += LANES
    for j in range(count):
        summed = total(scores + 4 * j * row, padded)
        if sinks:
            summed += entry(scores + 4 * j * row, row - LANES)
        multiply_by(outs + 4 * j * size, size, 1.0 / summed)


@by_address(OPERATION)
def attend(run: Any, own: int) -> None:
    """Run the attention at address `own` over queries, keys and values in rows of `wide`; results replace the queries.

    Threads take key-value heads in turn and meet at a barrier after them, with gates, shorter values and norms
    over all heads at one more each.
    """
    a = attention_at(own)
    if a.whole_query_norm or a.whole_key_norm:
        for r in range(run.thread, run.rows, run.threads):
            query = run.wide + 4 * r * run.wide_row
            key = query + 4 * (1 + a.gated) * a.heads * a.size
            if a.whole_query_norm:
                norm(query, a.whole_query_norm, query, a.heads * a.size, a.eps)
            if a.whole_key_norm:
                norm(key, a.whole_key_norm, key, a.kv_heads * a.size, a.eps)
        barrier(run)
    turn = next_turn(run)
    head = next_piece(run, turn, 0)
    while head < a.kv_heads:
        attend_head(run, a, head)
        head = next_piece(run, turn, head + 1)
    barrier(run)
    if a.gated:
        for r in range(run.thread, run.rows, run.threads):
            row = run.wide + 4 * r * run.wide_row
            for h in range(a.heads):
                mixed = row + 8 * h * a.size
                close_gate(mixed, mixed + 4 * a.size, row + 4 * h * a.size, a.size)
        barrier(run)
    if a.value_dim:
        for r in range(run.thread, run.rows, run.threads):
            row = run.wide + 4 * r * run.wide_row
            for h in range(1, a.heads):
                copy_vector(row + 4 * h * a.size, row + 4 * h * a.value_dim, a.value_dim)
        barrier(run)


ADDRESS = code_address(attend)
"""Address of `attend`."""
