"""Mixtures of experts: each chosen one is read once for all rows that have it, and an MLP beside them for every row.

A row with one of its experts is a pair, whose products are those of the row alone. The results of a row's experts are
added in the order of the experts, then that of the shared MLP, whatever other rows choose and whichever thread adds.
"""

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import code_address, word
from specchat.engine.cpu.mixtures import (
    BESIDE,
    BETWEEN,
    COUNT,
    GATES,
    INPUTS,
    ORDER,
    ORDER_ROW,
    POST_EXPERTS,
    POST_SHARED,
    ROUTER_NORM,
    SHARED_GATE,
    SHARED_INPUTS,
    SHARED_ROW,
    SHARED_SUMS,
    SHARES,
    SUMS,
    TOP,
)
from specchat.engine.cpu.products import COLUMNS, PANELS, multiply
from specchat.engine.cpu.routing import route, sort
from specchat.engine.cpu.rowwise import add_scaled, add_vector, copy_vector, norm
from specchat.engine.cpu.signatures import EXPERTS
from specchat.engine.cpu.simd import by_address
from specchat.engine.cpu.softmax import entry, fill
from specchat.engine.cpu.together import barrier, gated_piece, next_piece, piece_end, piece_size
from specchat.engine.memory.vectors import FEW, LANES


@by_address(types.void(*EXPERTS))
def experts(
    rows: int,
    x: int,
    x_row: int,
    router: int,
    mixture: int,
    activation: int,
    kernels: int,
    extras: int,
    y: int,
    hidden: int,
    factor: np.float32,
    post: int,
    eps: np.float32,
    own: int,
    own_row: int,
    counters: int,
    which: int,
    passed: int,
    thread: int,
    threads: int,
) -> None:
    """y = y + factor * mixture(x), y float32 [rows, hidden]; what is added goes through the norm `post` if any.

    Threads meet at three barriers, at four with a norm or norms apart, and take pieces by the counters `which` and the
    next. Before, they have `passed` some. It is called by its address, so only a model with experts has it compiled.

    Args:
        x: float32 rows, `x_row` elements apart.
        router: address of its row in the table of products; those of gate and up and those of down follow, by expert,
            then gate and up, down and score of the shared MLP.
        mixture: address of a row of `mixtures.Mixtures`.
        activation: a code of `gates.CODES`.
        own: float32 [rows, own_row], the thread's own.
    """
    top, count, shares = word(mixture, TOP), word(mixture, COUNT), word(mixture, SHARES)
    apart, shared_row = word(mixture, ROUTER_NORM), word(mixture, SHARED_ROW)
    begun, ended = rows * thread // threads, rows * (thread + 1) // threads
    if begun < ended:
        route(begun, ended, x, x_row, router, mixture, kernels, extras, hidden, eps, own, own_row)
    passed = barrier(counters, passed, threads)

    shared_x, shared_x_row = x, x_row
    if apart:
        x, x_row = word(mixture, INPUTS), hidden
        shared_x, shared_x_row = word(mixture, SHARED_INPUTS), hidden
    order = word(mixture, ORDER) + 8 * thread * word(mixture, ORDER_ROW)
    hits = sort(rows, mixture, order)
    hit_experts = order + 8 * (count + 1)
    of_row = hit_experts + 8 * count
    slots = of_row + 8 * rows * top

    expert, shared = router + 8 * COLUMNS, router + 8 * COLUMNS * (1 + 2 * count)
    between, beside = word(mixture, BETWEEN), word(mixture, BESIDE)
    shared_panels = shared_row // (2 * LANES)
    shared_size = piece_size(shared_panels, FEW, threads)
    before = (shared_panels - FEW) // shared_size + 1 if shared_row else 0
    panels = word(expert, PANELS) // 2
    row = 2 * panels * LANES
    size = min(panels, piece_size(hits * panels, FEW, threads))
    pieces, gathered = (panels - FEW) // size + 1, -1
    index = next_piece(counters, which, threads, 0)
    while index < before + hits * pieces:
        if index < before:
            first, last = index * shared_size, piece_end(index, shared_panels, FEW, shared_size)
            gated_piece(
                rows, shared_x, shared_x_row, shared, activation, kernels, extras, beside, shared_row, first, last
            )
            index = next_piece(counters, which, threads, index + 1)
            continue
        hit, piece = (index - before) // pieces, (index - before) % pieces
        e, first, last = word(hit_experts, hit), piece * size, piece_end(piece, panels, FEW, size)
        begin, many = word(order, e), word(order, e + 1) - word(order, e)
        inputs, inputs_row = x, x_row
        if many == 1:
            inputs = x + 4 * word(of_row, begin) * x_row
        elif many < rows:
            inputs, inputs_row = own, own_row
            if gathered != e:
                for r in range(many):
                    copy_vector(x + 4 * word(of_row, begin + r) * x_row, own + 4 * r * own_row, hidden)
                gathered = e
        of_expert, out = expert + 8 * COLUMNS * e, between + 4 * begin * row
        gated_piece(many, inputs, inputs_row, of_expert, activation, kernels, extras, out, row, first, last)
        index = next_piece(counters, which, threads, index + 1)
    passed = barrier(counters, passed, threads)

    expert += 8 * COLUMNS * count
    shared += 8 * COLUMNS
    sums, shared_sums = word(mixture, SUMS), word(mixture, SHARED_SUMS)
    panels = word(expert, PANELS)
    size, index = piece_size(panels, FEW, threads), next_piece(counters, which + 1, threads, 0)
    last = piece_end(index, panels, FEW, size)
    while last:
        first = index * size
        start, stop = first * LANES, min(last * LANES, hidden)
        for r in range(rows):
            fill(sums + 4 * r * hidden, start, stop, np.float32(0.0))
        for hit in range(hits):
            e = word(hit_experts, hit)
            begin, many = word(order, e), word(order, e + 1) - word(order, e)
            of_expert, inputs = expert + 8 * COLUMNS * e, between + 4 * begin * row
            multiply(many, inputs, row, of_expert, kernels, extras, own, own_row, first, last)
            for r in range(many):
                to, share = word(of_row, begin + r), entry(shares, word(slots, begin + r))
                add_scaled(own + 4 * (r * own_row + start), sums + 4 * (to * hidden + start), stop - start, share)
        if shared_row:
            multiply(rows, beside, shared_row, shared, kernels, extras, own, own_row, first, last)
            for r in range(rows):
                to_row = shared_sums + 4 * r * hidden
                if apart:
                    fill(to_row, start, stop, np.float32(0.0))
                share = entry(word(mixture, GATES), r) if word(mixture, SHARED_GATE) else np.float32(1.0)
                add_scaled(own + 4 * (r * own_row + start), to_row + 4 * start, stop - start, share)
        if not (post or apart):
            for r in range(rows):
                add_scaled(sums + 4 * (r * hidden + start), y + 4 * (r * hidden + start), stop - start, factor)
        index = next_piece(counters, which + 1, threads, index + 1)
        last = piece_end(index, panels, FEW, size)
    passed = barrier(counters, passed, threads)
    if not (post or apart):
        return
    for r in range(thread, rows, threads):
        made, beside_it = sums + 4 * r * hidden, shared_sums + 4 * r * hidden
        if apart:
            norm(made, word(mixture, POST_EXPERTS), made, hidden, eps)
            norm(beside_it, word(mixture, POST_SHARED), beside_it, hidden, eps)
            add_vector(beside_it, made, hidden)
        if post:
            norm(made, post, made, hidden, eps)
        add_scaled(made, y + 4 * r * hidden, hidden, factor)
    barrier(counters, passed, threads)


ADDRESS = code_address(experts)
