"""A whole pass over the layers in one function, run by one thread or by several at once.

The threads do every product together, taking turns at pieces of it, and wait for each other five times a layer. What a
thread computes does not depend on who computes the rest. The function reads like `model/layers.py`, with which it is
compared in the tests; what it writes differs in the last bits.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from specchat.engine.cpu.atomics import address, relax, seen, taken, word
from specchat.engine.cpu.products import COLUMNS, FEW, PANELS, multiply
from specchat.engine.cpu.rowwise import added, attend, copied, gated, norm, turned
from specchat.engine.cpu.simd import LANES, inner

QKV, OUT, GATE_UP, DOWN = range(4)
"""The products of a layer, in the table of products."""
ARRIVED, LINE = 0, 8
"""Counters are a cache line apart: who arrived at a barrier, then the turns at each product."""
PIECES = 4
"""Pieces of a product for each thread, so that a slow one holds up the others little."""
SPINS = 2000
"""Looks at a counter before the processor is left to others."""


@inner
def wait(counters: int, passed: int, threads: int) -> int:
    """Until all threads were here, for the `passed` + 1st time; returns how often that is."""
    if threads > 1:
        taken(counters, ARRIVED)
        looks = 0
        while seen(counters) < (passed + 1) * threads:
            looks += 1
            if looks % SPINS == 0:
                relax()
    return passed + 1


@inner
def piece(panels: int, threads: int) -> int:
    """Panels that a thread takes at a time."""
    return panels if threads == 1 else max(FEW, -(-panels // (PIECES * threads) // FEW) * FEW)


@inner
def turn(counters: int, which: int, threads: int, alone: int) -> int:
    """The number of the next piece that nobody took; `alone` where there is one thread."""
    return taken(counters, LINE * (1 + which)) if threads > 1 else alone


@inner
def end(index: int, panels: int, size: int) -> int:
    """The panel after piece `index`, which has what would be less than FEW after it besides; 0 for no piece."""
    first = index * size
    if panels - first < FEW:
        return 0
    return panels if panels - first - size < FEW else first + size


@inner
def product(
    rows: int,
    x: int,
    x_row: int,
    of: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """y = x W^T + b."""
    panels = word(of, PANELS)
    size, index = piece(panels, threads), turn(counters, which, threads, 0)
    last = end(index, panels, size)
    while last:
        multiply(rows, x, x_row, of, kernels, extras, y, y_row, index * size, last)
        index = turn(counters, which, threads, index + 1)
        last = end(index, panels, size)


@inner
def onto(
    rows: int,
    y: int,
    y_row: int,
    of: int,
    kernels: int,
    extras: int,
    x: int,
    hidden: int,
    own: int,
    own_row: int,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """x = x + y W^T + b, x float32 [rows, hidden]."""
    panels = word(of, PANELS)
    size, index = piece(panels, threads), turn(counters, which, threads, 0)
    last = end(index, panels, size)
    while last:
        first = index * size
        multiply(rows, y, y_row, of, kernels, extras, own, own_row, first, last)
        for r in range(rows):
            begin, stop = first * LANES, min(last * LANES, hidden)
            added(own + 4 * (r * own_row + begin), x + 4 * (r * hidden + begin), stop - begin)
        index = turn(counters, which, threads, index + 1)
        last = end(index, panels, size)


@inner
def gates(
    rows: int,
    x: int,
    x_row: int,
    of: int,
    kernels: int,
    extras: int,
    y: int,
    y_row: int,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """The first half of y = silu(x G^T) * (x U^T), `of` being G and U one after the other."""
    panels = word(of, PANELS) // 2
    size, index = piece(panels, threads), turn(counters, which, threads, 0)
    last = end(index, panels, size)
    while last:
        first = index * size
        for part in (0, panels):
            multiply(rows, x, x_row, of, kernels, extras, y, y_row, part + first, part + last)
        for r in range(rows):
            gate = y + 4 * (r * y_row + first * LANES)
            gated(gate, gate + 4 * panels * LANES, (last - first) * LANES)
        index = turn(counters, which, threads, index + 1)
        last = end(index, panels, size)


@inner
def attention(
    head: int,
    kv_heads: int,
    group: int,
    size: int,
    start: int,
    runs: int,
    count: int,
    before: int,
    stashes: int,
    stashed: int,
    stash_jump: int,
    head_norms: int,
    eps: np.float32,
    keys: int,
    values: int,
    cos: int,
    sin: int,
    qkv: int,
    qkv_row: int,
    scores: int,
) -> None:
    """The query heads that share key-value head `head`: their results take the queries' places in `qkv`.

    The slots of the cache are those of a chain, so a run overwrites what a run before it left there. `head_norms` is 0
    without any; `stash_jump` is the elements from a stashed key to its value.
    """
    scale = 1.0 / math.sqrt(size)
    width = 4 * size
    one, other, rated = scores, scores + width, scores + 2 * width
    row = 0
    for run in range(count):
        place, rows = start + word(runs, 4 * run), word(runs, 4 * run + 1)
        first, last = word(runs, 4 * run + 2), word(runs, 4 * run + 3)
        for i in range(first, last):
            kept = stashes + width * (word(before, i) * kv_heads + head)
            copied(kept, keys + width * (place - last + i), size)
            copied(kept + 4 * stash_jump, values + width * (place - last + i), size)
        for i in range(rows):
            key = qkv + 4 * (row + i) * qkv_row + width * (kv_heads * group + head)
            value = key + width * kv_heads
            slot = keys + width * (place + i)
            if head_norms:
                norm(key, head_norms + width, one, size, eps)
                key = one
            turned(key, cos + width * (place + i), sin + width * (place + i), slot, size)
            copied(value, values + width * (place + i), size)
            if stashed >= 0:
                kept = stashes + width * ((stashed + row + i) * kv_heads + head)
                copied(slot, kept, size)
                copied(value, kept + 4 * stash_jump, size)
        for i in range(rows):
            for g in range(group):
                out = qkv + 4 * (row + i) * qkv_row + width * (head * group + g)
                query = out
                if head_norms:
                    norm(query, head_norms, one, size, eps)
                    query = one
                turned(query, cos + width * (place + i), sin + width * (place + i), other, size)
                attend(other, keys, values, place + i + 1, size, scale, rated, out)
        row += rows


@njit(
    "void(f4[:,::1], i8, i8, i8[:,::1], i8[::1], f4[:,:,:,:,::1], i8, i8[:,::1], i8[:,::1], f4[::1], f4[:,:,::1], "
    "f4[:,:,::1], f4, f4[:,:,:,::1], f4[:,:,:,::1], f4[:,::1], f4[:,::1], i8, b1[:,::1], f4[:,::1], "
    "f4[:,:,:,::1], f4[:,::1], i8[::1], i8, i8)",
    nogil=True,
    error_model="numpy",
    cache=True,
)
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
        scores: float32 [threads, 2 head_dim + capacity + LANES].
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
    for layer in range(deep):
        used, of = 5 * layer, products + 8 * COLUMNS * 4 * layer
        if parts[layer, 0]:
            for r in range(rows):
                norm(xs + 4 * r * hidden, address(norms) + 8 * layer * hidden, normed + 4 * r * own_row, hidden, eps)
            product(rows, normed, own_row, of, plans, more, ys, wide_row, board, used, threads)
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


@njit(
    "void(f4[:,::1], i8, i8[::1], i8[:,::1], f4[::1], f4[::1], f4, f4[:,::1], f4[:,:,:,::1], i8[::1], i8, i8)",
    nogil=True,
    error_model="numpy",
    cache=True,
)
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
