"""Mixtures of experts: each chosen one is read once for all rows that have it, and an MLP beside them for every row.

A row with one of its experts is a pair, whose products are those of the row alone. The results of a row's experts are
added in the order of the experts, then that of the shared MLP, whatever other rows choose and whichever thread adds.
"""

from typing import Any

import numpy as np

from specchat.engine.cpu.layers.routing import route, sort
from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import OPERATION, PRODUCT_BYTES, mixture_at, product_at
from specchat.engine.cpu.primitives.rowwise import add_scaled, add_vector, copy_vector, entry, fill, norm
from specchat.engine.cpu.primitives.simd import by_address
from specchat.engine.cpu.products.products import RowSpan, multiply
from specchat.engine.cpu.products.shared import (
    barrier,
    gate_panels,
    gated_piece,
    next_piece,
    next_turn,
    piece_end,
    piece_size,
)
from specchat.engine.memory.vectors import FEW, LANES


@by_address(OPERATION)
def experts(run: Any, own: int) -> None:
    """x = x + factor * mixture(input), x the rows of the pass; `post` normalises the update, if any.

    Threads meet at three barriers, at four with a norm or norms apart. It is called by its address, so only a model
    with experts has it compiled.
    """
    m = mixture_at(own)
    rows, thread, threads, hidden, y = run.rows, run.thread, run.threads, run.hidden, run.x
    top, count, apart, shared_row, factor = m.top, m.count, m.router_norm, m.shared_row, m.factor
    scratch = RowSpan(run.scratch, run.own_row)
    begun, ended = rows * thread // threads, rows * (thread + 1) // threads
    if begun < ended:
        route(run, m, begun, ended)
    barrier(run)

    x = shared_x = RowSpan(run.input, run.input_row)
    if apart:
        x, shared_x = RowSpan(m.inputs, hidden), RowSpan(m.shared_inputs, hidden)
    order = m.order + 8 * thread * m.order_row
    hits = sort(rows, m, order)
    hit_experts = order + 8 * (count + 1)
    of_row = hit_experts + 8 * count
    slots = of_row + 8 * rows * top

    expert, shared = m.products + PRODUCT_BYTES, m.products + PRODUCT_BYTES * (1 + 2 * count)
    between, shared_out = m.between, RowSpan(m.beside, shared_row)
    shared_panels = shared_row // (2 * LANES)
    shared_size = piece_size(shared_panels, FEW, threads)
    before = (shared_panels - FEW) // shared_size + 1 if shared_row else 0
    panels = gate_panels(expert, m.activation)
    row = 2 * panels * LANES
    size = min(panels, piece_size(hits * panels, FEW, threads))
    pieces, gathered = (panels - FEW) // size + 1, -1
    turn = next_turn(run)
    index = next_piece(run, turn, 0)
    while index < before + hits * pieces:
        if index < before:
            first, last = index * shared_size, piece_end(index, shared_panels, FEW, shared_size)
            gated_piece(rows, shared_x, shared, m.activation, 0, shared_out, first, last)
            index = next_piece(run, turn, index + 1)
            continue
        hit, piece = (index - before) // pieces, (index - before) % pieces
        e, first, last = word(hit_experts, hit), piece * size, piece_end(piece, panels, FEW, size)
        begin, many = word(order, e), word(order, e + 1) - word(order, e)
        inputs = x
        if many == 1:
            inputs = RowSpan(x.at + 4 * word(of_row, begin) * x.row, x.row)
        elif many < rows:
            inputs = scratch
            if gathered != e:
                for r in range(many):
                    copy_vector(x.at + 4 * word(of_row, begin + r) * x.row, scratch.at + 4 * r * scratch.row, hidden)
                gathered = e
        out = RowSpan(between + 4 * begin * row, row)
        gated_piece(many, inputs, expert + PRODUCT_BYTES * e, m.activation, 0, out, first, last)
        index = next_piece(run, turn, index + 1)
    barrier(run)

    expert += PRODUCT_BYTES * count
    shared += PRODUCT_BYTES
    sums, shared_sums = m.sums, m.shared_sums
    panels = product_at(expert).panels
    turn = next_turn(run)
    size, index = piece_size(panels, FEW, threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, FEW, size)
    while last:
        first = index * size
        start, stop = first * LANES, min(last * LANES, hidden)
        for r in range(rows):
            fill(sums + 4 * r * hidden, start, stop, np.float32(0.0))
        for hit in range(hits):
            e = word(hit_experts, hit)
            begin, many = word(order, e), word(order, e + 1) - word(order, e)
            multiply(many, RowSpan(between + 4 * begin * row, row), expert + PRODUCT_BYTES * e, scratch, first, last)
            for r in range(many):
                to, share = word(of_row, begin + r), entry(m.shares, word(slots, begin + r))
                add_scaled(
                    scratch.at + 4 * (r * scratch.row + start), sums + 4 * (to * hidden + start), stop - start, share
                )
        if shared_row:
            multiply(rows, shared_out, shared, scratch, first, last)
            for r in range(rows):
                to_row = shared_sums + 4 * r * hidden
                if apart:
                    fill(to_row, start, stop, np.float32(0.0))
                share = entry(m.gates, r) if m.shared_gate else np.float32(1.0)
                add_scaled(scratch.at + 4 * (r * scratch.row + start), to_row + 4 * start, stop - start, share)
        if not (m.post or apart):
            for r in range(rows):
                add_scaled(sums + 4 * (r * hidden + start), y + 4 * (r * hidden + start), stop - start, factor)
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, FEW, size)
    barrier(run)
    if not (m.post or apart):
        return
    for r in range(thread, rows, threads):
        update, shared_update = sums + 4 * r * hidden, shared_sums + 4 * r * hidden
        if apart:
            norm(update, m.post_experts, update, hidden, m.eps)
            norm(shared_update, m.post_shared, shared_update, hidden, m.eps)
            add_vector(shared_update, update, hidden)
        if m.post:
            norm(update, m.post, update, hidden, m.post_eps)
        add_scaled(update, y + 4 * r * hidden, hidden, factor)
    barrier(run)


ADDRESS = code_address(experts)
