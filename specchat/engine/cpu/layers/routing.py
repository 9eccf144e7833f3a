"""The experts that rows choose: the router's scores, the shares of the likeliest, and the pairs in order of experts."""

from typing import Any

import numpy as np

from specchat.engine.cpu.primitives.activations import sigmoids
from specchat.engine.cpu.primitives.atomics import put_word, word
from specchat.engine.cpu.primitives.records import PRODUCT_BYTES, product_at
from specchat.engine.cpu.primitives.rowwise import entry, exponentials, fill, norm, peak, total
from specchat.engine.cpu.primitives.simd import Address, Count, Number, inner, primitive, store
from specchat.engine.cpu.products.products import RowSpan, multiply
from specchat.engine.memory.vectors import LANES

NEVER = np.float32(-np.inf)
"""The rank of an expert that cannot be chosen any more."""


@primitive
def put_number(builder: Any, address: Address, index: Count, value: Number) -> None:
    """Put a float32 at `address`, `index` elements further."""
    store(builder, value, address, index)


@inner
def leave_out(ranks: int, of_groups: int, m: Any) -> None:
    """Leave the kept groups of experts with their ranks; the others cannot be chosen any more.

    A group goes by the sum of its two largest ranks, or its largest alone, of equal ones the lower first. `of_groups`
    float32 [groups].
    """
    groups, size = m.groups, m.count // m.groups
    for group in range(groups):
        first, second = NEVER, NEVER
        for i in range(group * size, (group + 1) * size):
            rank = entry(ranks, i)
            if rank > first:
                first, second = rank, first
            elif rank > second:
                second = rank
        put_number(of_groups, group, first if m.by_best else first + second)
    for group in range(groups):
        before = 0
        for other in range(groups):
            more = entry(of_groups, other) > entry(of_groups, group)
            if more or (other < group and entry(of_groups, other) == entry(of_groups, group)):
                before += 1
        if before >= m.kept_groups:
            fill(ranks, group * size, (group + 1) * size, NEVER)


@inner
def choose(scores: int, padded: int, m: Any, shares: int, chosen: int) -> None:
    """Choose a row's experts by its scores float32 [padded], which are overwritten; fill its shares and experts.

    Of equal scores the lower expert comes first. Scores that are no numbers count as the least: no expert is chosen
    twice, so every pair has room. Twice as many values after the scores are overwritten too.
    """
    count, top, correction = m.count, m.top, m.correction
    fill(scores, count, padded, NEVER)
    whole, summed = np.float32(1.0), np.float32(0.0)
    if m.sigmoid:
        sigmoids(scores, padded)
    else:
        exponentials(scores, padded, peak(scores, padded), np.float32(1.0))
        fill(scores, count, padded, np.float32(0.0))
        whole = total(scores, padded)
    ranks = scores + 4 * padded
    for i in range(count):
        if not entry(scores, i) >= 0.0:
            put_number(scores, i, np.float32(0.0))
        put_number(ranks, i, entry(scores, i) / whole + entry(correction, i) if correction else entry(scores, i))
    if m.kept_groups < m.groups:
        leave_out(ranks, ranks + 4 * padded, m)
    for k in range(top):
        best, found = NEVER, 0
        for i in range(count):
            if entry(ranks, i) > best:
                best, found = entry(ranks, i), i
        put_number(ranks, found, NEVER)
        put_word(chosen, k, found)
        put_number(shares, k, entry(scores, found) / whole)
        summed += entry(scores, found) / whole
    if m.renormalised:
        for k in range(top):
            put_number(shares, k, entry(shares, k) / summed)
    if m.factors:
        for k in range(top):
            put_number(shares, k, entry(shares, k) * entry(m.factors, word(chosen, k)))


@inner
def sort(rows: int, m: Any, order: int) -> int:
    """Sort the pairs of `rows` rows by expert, each expert's by row; return the number of experts that have some.

    Fills `order`, int64: the first pair of each expert and the end of all, [count + 1]; those experts, [count]; the
    row of each pair and its place among the shares, [rows * top] each.
    """
    count, top, chosen = m.count, m.top, m.chosen
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


@inner
def route(run: Any, m: Any, begun: int, ended: int) -> None:
    """Choose the experts of rows `begun`, ..., `ended` - 1 of the input.

    Where norms are apart, fill these rows of the inputs of experts and shared MLP; fill their shares of the latter.
    """
    top, padded, count, hidden = m.top, LANES * product_at(m.products).panels, ended - begun, run.hidden
    x = RowSpan(run.input + 4 * begun * run.input_row, run.input_row)
    inputs = x
    if m.router_norm:
        inputs = RowSpan(run.scratch, run.own_row)
        for r in range(count):
            row, offset = x.at + 4 * r * x.row, 4 * (begun + r) * hidden
            norm(row, m.pre_experts, m.inputs + offset, hidden, m.eps)
            norm(row, m.pre_shared, m.shared_inputs + offset, hidden, m.eps)
            norm(row, m.router_norm, inputs.at + 4 * r * inputs.row, hidden, m.eps)
    scores = RowSpan(m.between + 12 * begun * padded, 3 * padded)
    multiply(count, inputs, m.products, scores, 0, padded // LANES)
    for r in range(count):
        shares, chosen = m.shares + 4 * (begun + r) * top, m.chosen + 8 * (begun + r) * top
        choose(scores.at + 4 * r * scores.row, padded, m, shares, chosen)
    if m.shared_gate:
        # The buffer is free until the shared MLP runs.
        gate, beside = (
            m.products + PRODUCT_BYTES * (3 + 2 * m.count),
            RowSpan(m.beside + 4 * begun * m.shared_row, m.shared_row),
        )
        multiply(count, x, gate, beside, 0, product_at(gate).panels)
        for r in range(count):
            score = beside.at + 4 * r * beside.row
            sigmoids(score, LANES)
            put_number(m.gates, begun + r, entry(score, 0))
