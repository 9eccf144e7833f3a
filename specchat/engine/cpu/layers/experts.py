"""Mixtures of experts: each chosen one is read once for all rows that have it, and an MLP beside them for every row.

A row with one of its experts is a pair, whose products are those of the row alone. The results of a row's experts are
added in the order of the experts, then that of the shared MLP, whatever other rows choose and whichever thread adds.
"""

from typing import Any, NamedTuple

import numpy as np

from specchat.engine.cpu.layers.routing import route, sort
from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import OPERATION, PRODUCT_BYTES, mixture_at, product_at
from specchat.engine.cpu.primitives.rowwise import add_scaled, add_vector, copy_vector, entry, fill, gather, norm
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.products import RowSpan, multiply
from specchat.engine.cpu.products.shared import (
    barrier,
    gate_panels,
    gated_piece,
    in_order,
    next_piece,
    next_turn,
    piece_end,
    piece_size,
)
from specchat.engine.memory.vectors import FEW, LANES


class Hits(NamedTuple):
    """Experts that rows of a pass chose, at addresses of int64.

    Attributes:
        found: number of them.
        experts: their numbers.
        ends: for each expert of all the first of its pairs; the one after it has the end.
        rows, slots: the row of each pair, and the index of its share.
    """

    found: int
    experts: int
    ends: int
    rows: int
    slots: int


@inner
def sorted_hits(rows: int, m: Any, order: int) -> Any:
    """Sort the pairs of a mixture by expert into a thread's `order`."""
    count = sort(rows, m, order)
    hit_experts = order + 8 * (m.count + 1)
    of_row = hit_experts + 8 * m.count
    return Hits(count, hit_experts, order, of_row, of_row + 8 * rows * m.top)


@inner
def gate_pairs(run: Any, m: Any, hits: Any) -> None:
    """Put the gates of all pairs and of the shared MLP into `between` and `beside`."""
    rows, threads, hidden, shared_row = run.rows, run.threads, run.hidden, m.shared_row
    scratch, x = RowSpan(run.scratch, run.own_row), RowSpan(run.input, run.input_row)
    shared_x = x
    if m.router_norm:
        x, shared_x = RowSpan(m.inputs, hidden), RowSpan(m.shared_inputs, hidden)
    expert, shared = m.products + PRODUCT_BYTES, m.products + PRODUCT_BYTES * (1 + 2 * m.count)
    shared_panels = shared_row // (2 * LANES)
    shared_size = piece_size(shared_panels, FEW, threads)
    before = (shared_panels - FEW) // shared_size + 1 if shared_row else 0
    panels = gate_panels(expert, m.activation)
    row = 2 * panels * LANES
    size = min(panels, piece_size(hits.found * panels, FEW, threads))
    pieces, gathered = (panels - FEW) // size + 1, -1
    turn = next_turn(run)
    index = next_piece(run, turn, 0)
    while index < before + hits.found * pieces:
        if index < before:
            first, last = index * shared_size, piece_end(index, shared_panels, FEW, shared_size)
            inputs = in_order(rows, shared_x, shared, scratch)
            gated_piece(rows, inputs, shared, m.activation, 0, RowSpan(m.beside, shared_row), first, last)
            index = next_piece(run, turn, index + 1)
            continue
        hit, piece = (index - before) // pieces, (index - before) % pieces
        e, first, last = word(hits.experts, hit), piece * size, piece_end(piece, panels, FEW, size)
        begin, many = word(hits.ends, e), word(hits.ends, e + 1) - word(hits.ends, e)
        matrix, inputs = expert + PRODUCT_BYTES * e, x
        placed = product_at(matrix).order
        if many == 1 and not placed:
            inputs = RowSpan(x.at + 4 * word(hits.rows, begin) * x.row, x.row)
        elif many < rows or placed:
            inputs = scratch
            if gathered != e:
                for r in range(many):
                    of_row, to = x.at + 4 * word(hits.rows, begin + r) * x.row, scratch.at + 4 * r * scratch.row
                    if placed:
                        gather(of_row, placed, to, product_at(matrix).inputs)
                    else:
                        copy_vector(of_row, to, hidden)
                gathered = e
        out = RowSpan(m.between + 4 * begin * row, row)
        gated_piece(many, inputs, matrix, m.activation, 0, out, first, last)
        index = next_piece(run, turn, index + 1)


@inner
def sum_pairs(run: Any, m: Any, hits: Any) -> None:
    """Add the results of each row's experts and of the shared MLP to `sums`, and these to x without norms."""
    rows, hidden, apart, shared_row = run.rows, run.hidden, m.router_norm, m.shared_row
    scratch, moved = RowSpan(run.scratch, run.own_row), RowSpan(run.normed, run.own_row)
    sums, shared_sums = m.sums, m.shared_sums
    row = 2 * gate_panels(m.products + PRODUCT_BYTES, m.activation) * LANES
    expert = m.products + PRODUCT_BYTES * (1 + m.count)
    shared = m.products + PRODUCT_BYTES * (2 + 2 * m.count)
    panels = product_at(expert).panels
    turn = next_turn(run)
    size, index = piece_size(panels, FEW, run.threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, FEW, size)
    while last:
        first = index * size
        start, stop = first * LANES, min(last * LANES, hidden)
        for r in range(rows):
            fill(sums + 4 * r * hidden, start, stop, np.float32(0.0))
        for hit in range(hits.found):
            e = word(hits.experts, hit)
            begin, many = word(hits.ends, e), word(hits.ends, e + 1) - word(hits.ends, e)
            matrix = expert + PRODUCT_BYTES * e
            inputs = in_order(many, RowSpan(m.between + 4 * begin * row, row), matrix, moved)
            multiply(many, inputs, matrix, scratch, first, last)
            for r in range(many):
                to, share = word(hits.rows, begin + r), entry(m.shares, word(hits.slots, begin + r))
                add_scaled(
                    scratch.at + 4 * (r * scratch.row + start), sums + 4 * (to * hidden + start), stop - start, share
                )
        if shared_row:
            inputs = in_order(rows, RowSpan(m.beside, shared_row), shared, moved)
            multiply(rows, inputs, shared, scratch, first, last)
            for r in range(rows):
                to_row = shared_sums + 4 * r * hidden
                if apart:
                    fill(to_row, start, stop, np.float32(0.0))
                share = entry(m.gates, r) if m.shared_gate else np.float32(1.0)
                add_scaled(scratch.at + 4 * (r * scratch.row + start), to_row + 4 * start, stop - start, share)
        if not (m.post or apart):
            for r in range(rows):
                add_scaled(sums + 4 * (r * hidden + start), run.x + 4 * (r * hidden + start), stop - start, m.factor)
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, FEW, size)


@by_address(OPERATION)
def experts(run: Any, own: int) -> None:
    """x = x + factor * mixture(input), x the rows of the pass; `post` normalises the update, if any.

    Threads meet at three barriers, at four with a norm or norms apart. It is called by its address, so only a model
    with experts has it compiled.
    """
    m = mixture_at(own)
    rows, thread, threads, hidden, apart = run.rows, run.thread, run.threads, run.hidden, m.router_norm
    begun, ended = rows * thread // threads, rows * (thread + 1) // threads
    if begun < ended:
        route(run, m, begun, ended)
    barrier(run)
    hits = sorted_hits(rows, m, m.order + 8 * thread * m.order_row)
    gate_pairs(run, m, hits)
    barrier(run)
    sum_pairs(run, m, hits)
    barrier(run)
    if not (m.post or apart):
        return
    for r in range(thread, rows, threads):
        update, shared_update = m.sums + 4 * r * hidden, m.shared_sums + 4 * r * hidden
        if apart:
            norm(update, m.post_experts, update, hidden, m.eps)
            norm(shared_update, m.post_shared, shared_update, hidden, m.eps)
            add_vector(shared_update, update, hidden)
        if m.post:
            norm(update, m.post, update, hidden, m.post_eps)
        add_scaled(update, run.x + 4 * r * hidden, hidden, m.factor)
    barrier(run)


ADDRESS = code_address(experts)
