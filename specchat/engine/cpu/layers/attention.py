"""Attention over the KV cache, for a few queries at a time over the same keys and values.

A query's result does not depend on the others: its sums have one order. KV entries after its own position weigh 0,
which adds nothing while values are finite.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import OPERATION, attention_at
from specchat.engine.cpu.primitives.rowwise import (
    cap_vector,
    close_gate,
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
from specchat.engine.cpu.primitives.simd import (
    I32,
    VECTOR,
    WORDS,
    Address,
    Count,
    by_address,
    constant,
    each_vector,
    fma,
    inner,
    load,
    primitive,
    splat,
    store,
    wide_vectors,
)
from specchat.engine.cpu.products.shared import barrier, next_piece, next_turn
from specchat.engine.cpu.products.tiles import FLOAT32, tile
from specchat.engine.memory.vectors import LANES, QUERIES

KEYS = 4
"""Keys multiplied at a time: their sums end in one vector."""
PANELS = 4 if wide_vectors() else 1
"""Vectors of a value whose sums for QUERIES queries fit in registers."""


@inner
def attend_head(run: Any, a: Any, head: int) -> None:
    """Attend with the query heads that share key-value head `head`; results replace the queries.

    Each query may have a gate after it, which is left alone. The cache holds one chain's positions, so a span
    overwrites what an earlier span left there. With shared entries rows have queries alone. `room` has
    `vectors.attention_room` elements.
    """
    size, group, kv_heads, scratch_row = a.size, a.heads // a.kv_heads, a.kv_heads, run.scratch_row
    width = 4 * size
    query_row = width * (1 + a.gated)
    keys, values = a.keys + head * a.capacity * width, a.values + head * a.capacity * width
    one, queries = run.room, run.room + width
    row = 0
    for span in range(run.span_count):
        position, rows = run.start + word(run.spans, 4 * span), word(run.spans, 4 * span + 1)
        first, last = word(run.spans, 4 * span + 2), word(run.spans, 4 * span + 3)
        for i in range(first, last):
            tree_entry = a.tree_scratch + width * (word(run.ancestors, i) * kv_heads + head)
            copy_vector(tree_entry, keys + width * (position - last + i), size)
            copy_vector(tree_entry + 4 * a.values_offset, values + width * (position - last + i), size)
        for i in range(rows if a.shared and scratch_row >= 0 else 0):
            # Spans that come later in the pass overwrote what the earlier layer has put there.
            tree_entry = a.tree_scratch + width * ((scratch_row + row + i) * kv_heads + head)
            copy_vector(tree_entry, keys + width * (position + i), size)
            copy_vector(tree_entry + 4 * a.values_offset, values + width * (position + i), size)
        for i in range(0 if a.shared else rows):
            key = run.wide + 4 * (row + i) * run.wide_row + query_row * kv_heads * group + width * head
            value = key + width * kv_heads
            entry = keys + width * (position + i)
            if a.key_norm:
                norm(key, a.key_norm, one, size, a.eps)
                key = one
            rotate_head(a, key, position + i, entry)
            if a.late_key_norm:
                norm(entry, a.late_key_norm, entry, size, a.eps)
            if a.value_norm:
                norm(value, a.value_norm, one, size, a.eps)
                value = one
            copy_vector(value, values + width * (position + i), size)
            if scratch_row >= 0:
                tree_entry = a.tree_scratch + width * ((scratch_row + row + i) * kv_heads + head)
                copy_vector(entry, tree_entry, size)
                copy_vector(value, tree_entry + 4 * a.values_offset, size)
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
            _attend(a, together, done, position + 1, sinks, queries, keys, values)
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
def _attend(a: Any, count: int, first: int, visible: int, sinks: int, queries: int, keys: int, values: int) -> None:
    """softmax(cap(scale * query keys^T)) values for `count` queries, 1 or QUERIES of them.

    Args:
        first: index of the first query. The first group of queries attends to `visible` KV entries, the next group to
            one more, and so on; with a window to the last ones alone.
        sinks: address of float32 [group]; 0 for none.
        queries: float32 [QUERIES, size], a multiple of LANES; the results [QUERIES, size] follow, then scores
            [QUERIES, capacity + LANES].
        keys, values: float32 [capacity, size].
    """
    size, group, window, row = a.size, a.heads // a.kv_heads, a.window, a.capacity + LANES
    if window:
        # In whole vectors: the lane of an entry's score is the same whatever queries are together.
        before = max(0, visible + first // group - window) // LANES * LANES
        keys, values, visible = keys + 4 * size * before, values + 4 * size * before, visible - before
    outs = queries + 4 * QUERIES * size
    scores = outs + 4 * QUERIES * size
    most = visible + (first + count - 1) // group
    if count == QUERIES:
        _dots(QUERIES, queries, keys, size, -(-most // KEYS) * KEYS, scores, row)
    else:
        _dots(1, queries, keys, size, -(-most // KEYS) * KEYS, scores, row)
    padded, scale = -(-most // LANES) * LANES, a.scale
    if a.score_cap > 0.0:
        for j in range(count):
            own = scores + 4 * j * row
            multiply_by(own, padded, scale)
            cap_vector(own, padded, a.score_cap)
        scale = np.float32(1.0)
    for j in range(count):
        own = scores + 4 * j * row
        behind = visible + (first + j) // group
        unseen = max(0, behind - window) if window else 0
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
    while d < size:
        left = size - d >= PANELS * LANES
        if count == QUERIES and left:
            tile(FLOAT32, QUERIES, PANELS, LANES, scores, row, values + 4 * d, size, LANES, most, outs + 4 * d, size)
            d += PANELS * LANES
        elif count == 1 and size - d >= 4 * LANES:
            tile(FLOAT32, 1, 4, LANES, scores, row, values + 4 * d, size, LANES, most, outs + 4 * d, size)
            d += 4 * LANES
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


@primitive
def _dots(
    builder: Any, rows: int, queries: Address, keys: Address, size: Count, count: Count, out: Address, row: Count
) -> None:
    """out[r, i] = the sum of queries[r, j] keys[i, j] over `size` j, for `count` keys.

    `size` is a multiple of LANES, `count` one of KEYS. out is float32, its rows `row` elements apart; `rows` is a
    constant.
    """
    most = rows if wide_vectors() else 1
    with cgutils.for_range(builder, builder.sdiv(count, constant(KEYS))) as loop:
        first = builder.mul(loop.index, constant(KEYS))
        for begun in range(0, rows, most):
            sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(KEYS)] for _ in range(most)]
            for slot in (slot for slots in sums for slot in slots):
                builder.store(splat(0.0), slot)

            def add(at: Any, begun: int = begun, sums: Any = sums) -> None:
                places = [builder.mul(builder.add(first, constant(i)), size) for i in range(KEYS)]
                seen = [load(builder, keys, builder.add(place, at)) for place in places]
                for r, slots in enumerate(sums, begun):
                    query = load(builder, queries, builder.add(builder.mul(constant(r), size), at))
                    for slot, key in zip(slots, seen, strict=True):
                        builder.store(fma(builder, query, key, builder.load(slot)), slot)

            each_vector(builder, size, add)
            summed = _sums(builder, [builder.load(slot) for slots in sums for slot in slots])
            for r in range(most):
                place = builder.add(builder.mul(constant(begun + r), row), first)
                lanes = ir.Constant(ir.VectorType(I32, KEYS), [KEYS * r + i for i in range(KEYS)])
                store(builder, builder.shuffle_vector(summed, summed, lanes), out, place)


def _sums(builder: Any, vectors: list[Any]) -> Any:
    """Lane sums of 4 or 16 vectors, one a lane; the order of each sum does not depend on the other vectors."""

    def halved(a: Any, b: Any, run: int) -> Any:
        """Fold groups of 2 `run` lanes of a, then of b: add the two halves of each group."""
        lanes = [i for i in range(2 * LANES) if i // run % 2 == 0]
        halves = (ir.Constant(WORDS, lanes), ir.Constant(WORDS, [i + run for i in lanes]))
        return builder.fadd(*(builder.shuffle_vector(a, b, half) for half in halves))

    run = LANES
    while run := run // 2:
        pairs = zip(vectors[::2], vectors[1::2] or vectors, strict=True)
        vectors = [halved(a, b, run) for a, b in pairs]
    return vectors[0]


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
