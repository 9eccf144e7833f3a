"""A whole pass over the layers in one function, run by one thread or by several at once.

The threads wait for each other five times a layer. The function reads like `model/layers.py`, with which it is
compared in the tests; what it writes differs in the last bits.
"""

from typing import Any

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import address, entry, word
from specchat.engine.cpu.attending import attention
from specchat.engine.cpu.products import COLUMNS, INPUTS
from specchat.engine.cpu.rowwise import copied, norm
from specchat.engine.cpu.signatures import HEAD, LAYERS
from specchat.engine.cpu.simd import called
from specchat.engine.cpu.together import gates, onto, product, turn, wait

QKV, OUT, GATE_UP, DOWN = range(4)
"""The products of a layer, in the table of products."""


@called(types.void(*LAYERS))
def layers(
    x: Any,
    rows: int,
    start: int,
    runs: Any,
    before: Any,
    stashes: Any,
    stashed: int,
    table: Any,
    kernels: Any,
    extras: Any,
    norms: Any,
    head_norms: Any,
    eps: np.float32,
    keys: Any,
    values: Any,
    cos: Any,
    sin: Any,
    heads: int,
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
        runs: int64 [runs, 4]: slots after `start`, rows, first and last entry of `before`; see `model/runs.py`.
        before: int64, rows of the stash whose entries are put right before a run.
        stashes: float32 [2, layers, rows, kv_heads, head_dim]; without trees `stashed`, the first to fill, is -1.
        table: int64 [4 layers + 1, COLUMNS], of products; `kernels` and `extras` as in `multiply`.
        norms: float32 [layers, 2, hidden]; `head_norms` [layers, 2, head_dim], or of no layers.
        keys, values: the cache, float32 [layers, kv_heads, capacity, head_dim].
        cos, sin: float32 [capacity, head_dim] of `rope.tables`.
        parts: bool [layers, 2]: which attentions and MLPs take part.
        wide: float32 [>= rows, the widest product's outputs], shared.
        own: float32 [threads, 2, >= rows, hidden, but LANES * FEW at least].
        scores: float32 [threads, what `vectors.attention_room` says].
        given: address of what the first attention is given in the place of x with its norm, float32 [rows, inputs]; 0
            where that is not so.
        tapped: int64 [layers + 1]: where among `slots` what x is after so many layers is kept, -1 where it is not.
        slots, nodes: float32 [kept, slots or rows of the stash, hidden], as in `model/taps.py`.
        counters: int64 [LINE * (1 + 5 layers)], zeros.
    """
    hidden, deep, kv_heads, size = x.shape[1], keys.shape[0], keys.shape[1], keys.shape[3]
    stash_rows = stashes.shape[2]
    own_row, wide_row = own.shape[3], wide.shape[1]
    xs, ys, products, plans, more = address(x), address(wide), address(table), address(kernels), address(extras)
    normed = address(own) + 4 * 2 * thread * own.shape[2] * own_row
    scratch = normed + 4 * own.shape[2] * own_row
    board, passed = address(counters), 0
    in_head = 4 * keys.shape[2] * size
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
        used, of = 5 * layer, products + 8 * COLUMNS * 4 * layer
        if parts[layer, 0]:
            inputs, inputs_row = normed, own_row
            if given and not layer:
                inputs, inputs_row = given, word(of, INPUTS)
            else:
                for r in range(rows):
                    weight = address(norms) + 8 * layer * hidden
                    norm(xs + 4 * r * hidden, weight, normed + 4 * r * own_row, hidden, eps)
            product(rows, inputs, inputs_row, of, plans, more, ys, wide_row, board, used, threads)
            passed = wait(board, passed, threads)
            head = turn(board, used + 1, threads, 0)
            while head < kv_heads:
                entries = (layer * kv_heads + head) * in_head
                attention(
                    head,
                    kv_heads,
                    heads // kv_heads,
                    size,
                    start,
                    address(runs),
                    runs.shape[0],
                    address(before),
                    address(stashes) + 4 * layer * stash_rows * kv_heads * size,
                    stashed,
                    deep * stash_rows * kv_heads * size,
                    address(head_norms) + 8 * layer * size if head_norms.shape[0] else 0,
                    eps,
                    address(keys) + entries,
                    address(values) + entries,
                    keys.shape[2],
                    address(cos),
                    address(sin),
                    ys,
                    wide_row,
                    address(scores) + 4 * thread * scores.shape[1],
                )
                head = turn(board, used + 1, threads, head + 1)
            passed = wait(board, passed, threads)
            out = of + 8 * COLUMNS * OUT
            onto(rows, ys, wide_row, out, plans, more, xs, hidden, scratch, own_row, board, used + 2, threads)
            passed = wait(board, passed, threads)
        if parts[layer, 1]:
            for r in range(rows):
                weight = address(norms) + 4 * (2 * layer + 1) * hidden
                norm(xs + 4 * r * hidden, weight, normed + 4 * r * own_row, hidden, eps)
            gate_up = of + 8 * COLUMNS * GATE_UP
            gates(rows, normed, own_row, gate_up, plans, more, ys, wide_row, board, used + 3, threads)
            passed = wait(board, passed, threads)
            down = of + 8 * COLUMNS * DOWN
            onto(rows, ys, wide_row, down, plans, more, xs, hidden, scratch, own_row, board, used + 4, threads)
            passed = wait(board, passed, threads)


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
