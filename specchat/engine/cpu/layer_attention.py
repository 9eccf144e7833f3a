"""Attention of a layer: heads one after the other, shared by threads, with norms before and gates after it."""

from typing import Any

from specchat.engine.cpu.atomics import address
from specchat.engine.cpu.attending import attention
from specchat.engine.cpu.descriptors import (
    ALL_HEADS,
    CAPACITY,
    COS,
    GATED,
    HEAD_EPS,
    HEADS,
    KEY_NORM,
    KEYS,
    KV_HEADS,
    QUERY_NORM,
    SCALE,
    SHARED,
    SIN,
    SINKS,
    SIZE,
    TEMPER,
    TREE_SCRATCH,
    TURNED,
    VALUE_NORM,
    VALUES,
    VALUES_OFFSET,
    WINDOW,
)  # fmt: skip
from specchat.engine.cpu.gates import close_gate
from specchat.engine.cpu.rowwise import norm
from specchat.engine.cpu.simd import inner
from specchat.engine.cpu.together import barrier, next_piece


@inner
def attend(
    rows: int,
    start: int,
    spans: Any,
    ancestors: Any,
    scratch_row: int,
    integers: Any,
    floats: Any,
    layer: int,
    ys: int,
    wide_row: int,
    scores: Any,
    counters: int,
    passed: int,
    thread: int,
    threads: int,
) -> int:
    """Run a layer's attention over queries, keys and values in rows of `ys`; results replace the queries.

    Threads take key-value heads in turn and meet at a barrier. Returns the number of barriers passed.
    """
    heads, kv_heads, size = integers[layer, HEADS], integers[layer, KV_HEADS], integers[layer, SIZE]
    gated = integers[layer, GATED]
    query_norm, key_norm, eps = integers[layer, QUERY_NORM], integers[layer, KEY_NORM], floats[layer, HEAD_EPS]
    if integers[layer, ALL_HEADS]:
        for r in range(thread, rows, threads):
            query, key = ys + 4 * r * wide_row, ys + 4 * (r * wide_row + (1 + gated) * heads * size)
            if query_norm:
                norm(query, query_norm, query, heads * size, eps)
            if key_norm:
                norm(key, key_norm, key, kv_heads * size, eps)
        query_norm, key_norm = 0, 0
        passed = barrier(counters, passed, threads)
    capacity = integers[layer, CAPACITY]
    used, head = 5 * layer + 1, next_piece(counters, 5 * layer + 1, threads, 0)
    while head < kv_heads:
        entries = 4 * head * capacity * size
        attention(
            head,
            kv_heads,
            heads // kv_heads,
            size,
            start,
            address(spans),
            spans.shape[0],
            address(ancestors),
            integers[layer, TREE_SCRATCH],
            scratch_row,
            integers[layer, VALUES_OFFSET],
            gated,
            integers[layer, TURNED],
            query_norm,
            key_norm,
            integers[layer, VALUE_NORM],
            eps,
            floats[layer, SCALE],
            integers[layer, WINDOW],
            integers[layer, KEYS] + entries,
            integers[layer, VALUES] + entries,
            capacity,
            integers[layer, COS],
            integers[layer, SIN],
            integers[layer, TEMPER],
            integers[layer, SINKS],
            integers[layer, SHARED],
            ys,
            wide_row,
            address(scores) + 4 * thread * scores.shape[1],
        )
        head = next_piece(counters, used, threads, head + 1)
    passed = barrier(counters, passed, threads)
    if gated:
        for r in range(thread, rows, threads):
            for h in range(heads):
                mixed, out = ys + 4 * (r * wide_row + 2 * h * size), ys + 4 * (r * wide_row + h * size)
                close_gate(mixed, mixed + 4 * size, out, size)
        passed = barrier(counters, passed, threads)
    return passed
