"""Mixtures of experts: rows choose their experts, and each chosen one is read once for all rows that have it.

A row with one of its experts is a pair, whose products are those of the row alone. The results of a row's experts are
added in the order of the experts, whatever other rows choose and whichever thread adds them.
"""

from typing import Any

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import code_address, put_word, word
from specchat.engine.cpu.gates import gate_by
from specchat.engine.cpu.mixtures import (
    BETWEEN,
    CHOSEN,
    COUNT,
    ORDER,
    ORDER_ROW,
    RENORMALISED,
    SHARES,
    SUMS,
    TOP,
)
from specchat.engine.cpu.products import COLUMNS, PANELS, multiply
from specchat.engine.cpu.rowwise import add_scaled, copy_vector, norm
from specchat.engine.cpu.signatures import EXPERTS
from specchat.engine.cpu.simd import called, inner, primitive, store
from specchat.engine.cpu.softmax import entry, exponentials, fill, peak, total
from specchat.engine.cpu.together import barrier, next_piece, piece_end, piece_size
from specchat.engine.model.vectors import FEW, LANES

TAKEN = np.float32(-1.0)
LEAST = np.float32(-0.5)
"""Below the share of any expert that is not taken."""


@primitive
def put_number(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Put a float32 at `address`, `index` elements further."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        store(builder, arguments[2], arguments[0], arguments[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), code


@inner
def choose(scores: int, padded: int, mixture: int, shares: int, chosen: int) -> None:
    """Choose a row's experts by its scores float32 [padded], which are overwritten; fill its shares and experts.

    Of equal scores the lower expert comes first. Scores that are no numbers count as the least: no expert is chosen
    twice, so every pair has room.
    """
    count, top = word(mixture, COUNT), word(mixture, TOP)
    fill(scores, count, padded, np.float32(-np.inf))
    exponentials(scores, padded, peak(scores, padded), np.float32(1.0))
    fill(scores, count, padded, np.float32(0.0))
    whole, summed = total(scores, padded), np.float32(0.0)
    for i in range(count):
        if not entry(scores, i) >= 0.0:
            put_number(scores, i, np.float32(0.0))
    for k in range(top):
        best, found = LEAST, 0
        for i in range(count):
            if entry(scores, i) > best:
                best, found = entry(scores, i), i
        put_number(scores, found, TAKEN)
        put_word(chosen, k, found)
        put_number(shares, k, best / whole)
        summed += best / whole
    if word(mixture, RENORMALISED):
        for k in range(top):
            put_number(shares, k, entry(shares, k) / summed)


@inner
def sort(rows: int, mixture: int, order: int) -> int:
    """Sort the pairs of `rows` rows by expert, each expert's by row; return the number of experts that have some.

    Fills `order`, int64: the first pair of each expert and the end of all, [count + 1]; those experts, [count]; the
    row of each pair and its place among the shares, [rows * top] each.
    """
    count, top, chosen = word(mixture, COUNT), word(mixture, TOP), word(mixture, CHOSEN)
    pairs = rows * top
    experts = order + 8 * (count + 1)
    of_row = experts + 8 * count
    for e in range(count + 1):
        put_word(order, e, 0)
    for pair in range(pairs):
        e = word(chosen, pair)
        put_word(order, e, word(order, e) + 1)
    hits, end = 0, 0
    for e in range(count + 1):
        if word(order, e):
            put_word(experts, hits, e)
            hits += 1
        end += word(order, e)
        put_word(order, e, end)
    # From the last pair on, the end of an expert's pairs moves to the first of them.
    for i in range(pairs):
        pair = pairs - 1 - i
        e = word(chosen, pair)
        place = word(order, e) - 1
        put_word(order, e, place)
        put_word(of_row, place, pair // top)
        put_word(of_row, pairs + place, pair)
    return hits


@called(types.void(*EXPERTS))
def experts(
    rows: int,
    x: int,
    x_row: int,
    of: int,
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

    Threads meet at three barriers, at four with a norm, and take pieces by the counters `which` and the next. Before,
    they have `passed` some. It is called by its address, so only a model with experts has it compiled.

    Args:
        x: float32 rows, `x_row` elements apart.
        of: the router's row in the table of products; those of gate and up and those of down follow, by expert.
        mixture: address of a row of `mixtures.Mixtures`.
        activation: a code of `gates.CODES`.
        own: float32 [rows, own_row], the thread's own.
    """
    top, between, sums, shares = word(mixture, TOP), word(mixture, BETWEEN), word(mixture, SUMS), word(mixture, SHARES)
    begun, ended = rows * thread // threads, rows * (thread + 1) // threads
    if begun < ended:
        padded = LANES * word(of, PANELS)
        scores = between + 4 * begun * padded
        multiply(ended - begun, x + 4 * begun * x_row, x_row, of, kernels, extras, scores, padded, 0, padded // LANES)
        for r in range(begun, ended):
            choose(between + 4 * r * padded, padded, mixture, shares + 4 * r * top, word(mixture, CHOSEN) + 8 * r * top)
    passed = barrier(counters, passed, threads)

    order = word(mixture, ORDER) + 8 * thread * word(mixture, ORDER_ROW)
    hits = sort(rows, mixture, order)
    hit_experts = order + 8 * (word(mixture, COUNT) + 1)
    of_row = hit_experts + 8 * word(mixture, COUNT)
    slots = of_row + 8 * rows * top

    first_of = of + 8 * COLUMNS
    panels = word(first_of, PANELS) // 2
    row = 2 * panels * LANES
    size = min(panels, piece_size(hits * panels, FEW, threads))
    pieces, gathered = (panels - FEW) // size + 1, -1
    index = next_piece(counters, which, threads, 0)
    while index < hits * pieces:
        e, first = word(hit_experts, index // pieces), index % pieces * size
        last = piece_end(index % pieces, panels, FEW, size)
        begin, many = word(order, e), word(order, e + 1) - word(order, e)
        inputs, inputs_row, out = x, x_row, between + 4 * begin * row
        if many == 1:
            inputs = x + 4 * word(of_row, begin) * x_row
        elif many < rows:
            inputs, inputs_row = own, own_row
            if gathered != e:
                for r in range(many):
                    copy_vector(x + 4 * word(of_row, begin + r) * x_row, own + 4 * r * own_row, hidden)
                gathered = e
        for part in (0, panels):
            of_expert = first_of + 8 * COLUMNS * e
            multiply(many, inputs, inputs_row, of_expert, kernels, extras, out, row, part + first, part + last)
        for r in range(many):
            gate = out + 4 * (r * row + first * LANES)
            gate_by(activation, gate, gate + 4 * panels * LANES, (last - first) * LANES)
        index = next_piece(counters, which, threads, index + 1)
    passed = barrier(counters, passed, threads)

    first_of += 8 * COLUMNS * word(mixture, COUNT)
    panels = word(first_of, PANELS)
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
            of_expert, inputs = first_of + 8 * COLUMNS * e, between + 4 * begin * row
            multiply(many, inputs, row, of_expert, kernels, extras, own, own_row, first, last)
            for r in range(many):
                to, share = word(of_row, begin + r), entry(shares, word(slots, begin + r))
                add_scaled(own + 4 * (r * own_row + start), sums + 4 * (to * hidden + start), stop - start, share)
        if not post:
            for r in range(rows):
                add_scaled(sums + 4 * (r * hidden + start), y + 4 * (r * hidden + start), stop - start, factor)
        index = next_piece(counters, which + 1, threads, index + 1)
        last = piece_end(index, panels, FEW, size)
    passed = barrier(counters, passed, threads)
    if not post:
        return
    for r in range(thread, rows, threads):
        norm(sums + 4 * r * hidden, post, own, hidden, eps)
        add_scaled(own, y + 4 * r * hidden, hidden, factor)
    barrier(counters, passed, threads)


ADDRESS = code_address(experts)
