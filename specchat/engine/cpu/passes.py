"""A whole pass over the layers in one function, run by one thread or by several at once.

The threads wait for each other five times a layer. It computes what `reference/` does, in other orders of sums.
"""

from typing import Any

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import address, entry, word
from specchat.engine.cpu.attending import attention
from specchat.engine.cpu.descriptors import (
    COS,
    EPS,
    HEADS,
    KEY_NORM,
    KEYS,
    KV_HEADS,
    POST_FEED,
    POST_MIXER,
    PRE_FEED,
    PRE_MIXER,
    PRODUCTS,
    QUERY_NORM,
    RESIDUAL,
    SCALE,
    SIN,
    SIZE,
    SLOTS,
    STASH,
    STASH_JUMP,
    TOGETHER,
    VALUES,
)  # fmt: skip
from specchat.engine.cpu.products import COLUMNS, INPUTS
from specchat.engine.cpu.rowwise import copied, norm
from specchat.engine.cpu.signatures import HEAD, LAYERS
from specchat.engine.cpu.simd import called, inner
from specchat.engine.cpu.together import gates, onto, product, turn, wait

QKV, OUT, GATE_UP, DOWN = range(4)
"""The products of a layer, in the table of products."""


@inner
def mixed(
    rows: int,
    start: int,
    runs: Any,
    before: Any,
    stashed: int,
    integers: Any,
    floats: Any,
    layer: int,
    ys: int,
    wide_row: int,
    scores: Any,
    board: int,
    passed: int,
    thread: int,
    threads: int,
) -> int:
    """Attention of a layer over its queries, keys and values in rows of `ys`, where its results come to lie.

    Threads take key-value heads in turn, and wait for each other; returns how often they have.
    """
    heads, kv_heads, size = integers[layer, HEADS], integers[layer, KV_HEADS], integers[layer, SIZE]
    query_norm, key_norm, eps = integers[layer, QUERY_NORM], integers[layer, KEY_NORM], floats[layer, EPS]
    if integers[layer, TOGETHER]:
        for r in range(thread, rows, threads):
            query, key = ys + 4 * r * wide_row, ys + 4 * (r * wide_row + heads * size)
            if query_norm:
                norm(query, query_norm, query, heads * size, eps)
            if key_norm:
                norm(key, key_norm, key, kv_heads * size, eps)
        query_norm, key_norm = 0, 0
        passed = wait(board, passed, threads)
    slots = integers[layer, SLOTS]
    used, head = 5 * layer + 1, turn(board, 5 * layer + 1, threads, 0)
    while head < kv_heads:
        entries = 4 * head * slots * size
        attention(
            head,
            kv_heads,
            heads // kv_heads,
            size,
            start,
            address(runs),
            runs.shape[0],
            address(before),
            integers[layer, STASH],
            stashed,
            integers[layer, STASH_JUMP],
            query_norm,
            key_norm,
            eps,
            floats[layer, SCALE],
            integers[layer, KEYS] + entries,
            integers[layer, VALUES] + entries,
            slots,
            integers[layer, COS],
            integers[layer, SIN],
            ys,
            wide_row,
            address(scores) + 4 * thread * scores.shape[1],
        )
        head = turn(board, used, threads, head + 1)
    return wait(board, passed, threads)


@called(types.void(*LAYERS))
def layers(
    x: Any,
    rows: int,
    start: int,
    runs: Any,
    before: Any,
    stashed: int,
    integers: Any,
    floats: Any,
    kernels: Any,
    extras: Any,
    parts: Any,
    wide: Any,
    own: Any,
    scores: Any,
    given: int,
    tapped: Any,
    slots: Any,
    nodes: Any,
    counters: Any,
    thread: int,
    threads: int,
) -> None:
    """All layers over `rows` rows of x, which is changed in place.

    Args:
        x: float32 [>= rows, hidden].
        start: slot of the cache that the rows begin at.
        runs: int64 [runs, 4]: slots after `start`, rows, first and last entry of `before`; see `model/tree_layout.py`.
        before: int64, rows of the stash whose entries are put right before a run.
        stashed: the first row of the stash to fill; -1 without trees.
        integers, floats: of `descriptors.Descriptors`; `kernels` and `extras` as in `multiply`.
        parts: bool [layers, 2]: which attentions and MLPs take part.
        wide: float32 [>= rows, the widest product's outputs], shared; with norms after sub-layers, and hidden behind.
        own: float32 [threads, 2, >= rows, hidden, but LANES * FEW at least].
        scores: float32 [threads, what `vectors.attention_room` says].
        given: address of what the first attention is given in the place of x with its norm, float32 [rows, inputs]; 0
            where that is not so.
        tapped: int64 [layers + 1]: where among `slots` what x is after so many layers is kept, -1 where it is not.
        slots, nodes: float32 [kept, slots or rows of the stash, hidden], as in `model/hidden_states.py`.
        counters: int64 [LINE * (1 + 5 layers)], zeros.
    """
    hidden, deep, own_row, wide_row = x.shape[1], len(integers), own.shape[3], wide.shape[1]
    xs, ys, plans, more, board = address(x), address(wide), address(kernels), address(extras), address(counters)
    normed = address(own) + 4 * 2 * thread * own.shape[2] * own_row
    scratch = normed + 4 * own.shape[2] * own_row
    passed = 0
    root = stashed == 0 and runs[0, 0] == 0
    for layer in range(deep + 1):
        if thread == 0 and tapped[layer] >= 0:
            # The others only read x until they have waited for this thread.
            slot = address(slots) + 4 * hidden * (tapped[layer] * slots.shape[1] + start)
            node = address(nodes) + 4 * hidden * (tapped[layer] * nodes.shape[1] + stashed)
            for r in range(rows):
                copied(xs + 4 * r * hidden, (slot if stashed < 0 else node) + 4 * r * hidden, hidden)
            if root:
                copied(xs, slot, hidden)
        if layer == deep:
            break
        used, of, eps, residual = 5 * layer, integers[layer, PRODUCTS], floats[layer, EPS], floats[layer, RESIDUAL]
        for part in range(2):
            if not parts[layer, part]:
                continue
            pre, post = (
                integers[layer, PRE_FEED if part else PRE_MIXER],
                integers[layer, POST_FEED if part else POST_MIXER],
            )
            inputs, inputs_row = normed, own_row
            if given and not layer and not part:
                inputs, inputs_row = given, word(of, INPUTS)
            elif pre:
                for r in range(rows):
                    norm(xs + 4 * r * hidden, pre, normed + 4 * r * own_row, hidden, eps)
            else:
                inputs, inputs_row = xs, hidden
            if part:
                gate_up = of + 8 * COLUMNS * GATE_UP
                gates(rows, inputs, inputs_row, gate_up, plans, more, ys, wide_row, board, used + 3, threads)
                passed = wait(board, passed, threads)
            else:
                product(rows, inputs, inputs_row, of, plans, more, ys, wide_row, board, used, threads)
                passed = wait(board, passed, threads)
                passed = mixed(
                    rows, start, runs, before, stashed, integers, floats, layer, ys, wide_row, scores, board, passed,
                    thread, threads,
                )  # fmt: skip
            last = of + 8 * COLUMNS * (DOWN if part else OUT)
            turns = used + 4 if part else used + 2
            passed = onto(
                rows, ys, wide_row, last, plans, more, xs, hidden, residual, post, eps, scratch, own_row, board, turns,
                passed, thread, threads,
            )  # fmt: skip


@called(types.void(*HEAD))
def head(
    x: Any,
    rows: int,
    of: Any,
    kernels: Any,
    extras: Any,
    weight: Any,
    eps: np.float32,
    logits: Any,
    own: Any,
    counters: Any,
    thread: int,
    threads: int,
) -> None:
    """Logits of rows of x: the last norm, and the product `of`, a row of the table; the rest is as in `layers`."""
    hidden, own_row = x.shape[1], own.shape[3]
    normed = address(own) + 4 * 2 * thread * own.shape[2] * own_row
    for r in range(rows):
        norm(address(x) + 4 * r * hidden, address(weight), normed + 4 * r * own_row, hidden, eps)
    product(
        rows,
        normed,
        own_row,
        address(of),
        address(kernels),
        address(extras),
        address(logits),
        logits.shape[1],
        address(counters),
        0,
        threads,
    )


ENTRIES = entry(layers), entry(head)
"""By which `scoring.run_layers` and `run_head` call both."""
