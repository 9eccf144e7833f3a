"""Attention over the KV cache, for a few queries at a time over the same keys and values.

A query's result does not depend on the others: its sums have one order. KV entries after its own position weigh 0,
which adds nothing while values are finite.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.atomics import word
from specchat.engine.cpu.rowwise import copy_vector, multiply_by, multiply_by_entry, norm, rotate
from specchat.engine.cpu.simd import (
    I32,
    VECTOR,
    WORDS,
    Address,
    Count,
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
from specchat.engine.cpu.softmax import entry, exponentials, fill, peak, put_sink, total
from specchat.engine.cpu.tiles import FLOAT32, tile
from specchat.engine.memory.vectors import LANES, QUERIES

KEYS = 4
"""Keys multiplied at a time: their sums end in one vector."""
PANELS = 4 if wide_vectors() else 1
"""Vectors of a value whose sums for QUERIES queries fit in registers."""


@inner
def attention(
    head: int,
    kv_heads: int,
    group: int,
    size: int,
    start: int,
    spans: int,
    count: int,
    ancestors: int,
    tree_scratch: int,
    scratch_row: int,
    values_offset: int,
    gated: int,
    turned: int,
    query_norm: int,
    key_norm: int,
    value_norm: int,
    eps: np.float32,
    scale: np.float32,
    window: int,
    keys: int,
    values: int,
    capacity: int,
    cos: int,
    sin: int,
    temper: int,
    sinks: int,
    shared: int,
    qkv: int,
    qkv_row: int,
    scratch: int,
) -> None:
    """Attend with the query heads that share key-value head `head`; results replace the queries in `qkv`.

    `turned` values of each head are rotated. If `gated` is 1 each query has a gate after it, which is left alone. The
    cache holds one chain's positions, so a span overwrites what an earlier span left there. Addresses of norms are 0
    for no norm. `values_offset` counts the elements from a key in the tree scratch to its value. `scratch` has
    `vectors.attention_room` elements. With `shared` the entries are there, made by a layer before; `qkv` then has
    queries alone.
    """
    width = 4 * size
    query_row = width * (1 + gated)
    one, queries = scratch, scratch + width
    row = 0
    for span in range(count):
        position, rows = start + word(spans, 4 * span), word(spans, 4 * span + 1)
        first, last = word(spans, 4 * span + 2), word(spans, 4 * span + 3)
        for i in range(first, last):
            tree_entry = tree_scratch + width * (word(ancestors, i) * kv_heads + head)
            copy_vector(tree_entry, keys + width * (position - last + i), size)
            copy_vector(tree_entry + 4 * values_offset, values + width * (position - last + i), size)
        for i in range(rows if shared and scratch_row >= 0 else 0):
            # Spans that come later in the pass overwrote what the layer before has put there.
            tree_entry = tree_scratch + width * ((scratch_row + row + i) * kv_heads + head)
            copy_vector(tree_entry, keys + width * (position + i), size)
            copy_vector(tree_entry + 4 * values_offset, values + width * (position + i), size)
        for i in range(0 if shared else rows):
            key = qkv + 4 * (row + i) * qkv_row + query_row * kv_heads * group + width * head
            value = key + width * kv_heads
            entry = keys + width * (position + i)
            if key_norm:
                norm(key, key_norm, one, size, eps)
                key = one
            turn(key, cos, sin, position + i, turned, entry, size)
            if value_norm:
                norm(value, value_norm, one, size, eps)
                value = one
            copy_vector(value, values + width * (position + i), size)
            if scratch_row >= 0:
                tree_entry = tree_scratch + width * ((scratch_row + row + i) * kv_heads + head)
                copy_vector(entry, tree_entry, size)
                copy_vector(value, tree_entry + 4 * values_offset, size)
        done = 0
        while done < rows * group:
            together = QUERIES if rows * group - done >= QUERIES else 1
            for j in range(done, done + together):
                query = qkv + 4 * (row + j // group) * qkv_row + query_row * (head * group + j % group)
                own = queries + width * (j - done)
                if query_norm:
                    norm(query, query_norm, one, size, eps)
                    query = one
                turn(query, cos, sin, position + j // group, turned, own, size)
                if temper:
                    multiply_by_entry(own, size, temper, position + j // group)
            own_sinks = sinks + 4 * head * group if sinks else 0
            _attend(
                together, done, group, position + 1, window, own_sinks, queries, keys, values, size, capacity, scale
            )
            for j in range(done, done + together):
                out = qkv + 4 * (row + j // group) * qkv_row + query_row * (head * group + j % group)
                copy_vector(queries + width * (QUERIES + j - done), out, size)
            done += together
        row += rows


@inner
def turn(x: int, cos: int, sin: int, position: int, turned: int, out: int, size: int) -> None:
    """out = x of `size` values with the first `turned` rotated as at `position`; cos and sin as in `rope.tables`."""
    row = 4 * turned * position
    rotate(x, cos + row, sin + row, out, turned)
    if turned < size:
        copy_vector(x + 4 * turned, out + 4 * turned, size - turned)


@inner
def _attend(
    count: int,
    first: int,
    group: int,
    visible: int,
    window: int,
    sinks: int,
    queries: int,
    keys: int,
    values: int,
    size: int,
    capacity: int,
    scale: np.float32,
) -> None:
    """softmax(scale * query keys^T) values for `count` queries, 1 or QUERIES of them.

    Args:
        first: index of the first query. Queries below `group` attend to `visible` KV entries, the next `group` to one
            more, and so on.
        window: entries that a query attends to at most, the last ones; 0 for all.
        sinks: address of float32 [group]; 0 for none.
        queries: float32 [QUERIES, size], a multiple of LANES; the results [QUERIES, size] follow, then scores
            [QUERIES, capacity + LANES].
        keys, values: float32 [capacity, size].
    """
    if window:
        # In whole vectors: the lane of an entry's score is the same whatever queries are together.
        before = max(0, visible + first // group - window) // LANES * LANES
        keys, values, visible = keys + 4 * size * before, values + 4 * size * before, visible - before
    outs = queries + 4 * QUERIES * size
    scores, row = outs + 4 * QUERIES * size, capacity + LANES
    most = visible + (first + count - 1) // group
    if count == QUERIES:
        _dots(QUERIES, queries, keys, size, -(-most // KEYS) * KEYS, scores, row)
    else:
        _dots(1, queries, keys, size, -(-most // KEYS) * KEYS, scores, row)
    padded = -(-most // LANES) * LANES
    for j in range(count):
        own = scores + 4 * j * row
        behind = visible + (first + j) // group
        unseen = max(0, behind - window) if window else 0
        fill(own, 0, unseen, -np.inf)
        fill(own, behind, padded, -np.inf)
        most_of = peak(own, padded)
        exponentials(own, padded, most_of, scale)
        if sinks:
            # Beyond the last score, where nothing else reads.
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
