"""The experts that rows choose: the router's scores, the shares of the likeliest, and the pairs in order of experts."""

from typing import Any

import numpy as np

from specchat.engine.cpu.atomics import put_word, word
from specchat.engine.cpu.mixtures import (
    BESIDE,
    BETWEEN,
    CHOSEN,
    CORRECTION,
    COUNT,
    FACTORS,
    GATES,
    GROUPS,
    INPUTS,
    KEPT_GROUPS,
    PRE_EXPERTS,
    PRE_SHARED,
    RENORMALISED,
    ROUTER_NORM,
    SHARED_GATE,
    SHARED_INPUTS,
    SHARED_ROW,
    SHARES,
    SIGMOID,
    TOP,
)
from specchat.engine.cpu.products import COLUMNS, PANELS, multiply
from specchat.engine.cpu.rowwise import norm
from specchat.engine.cpu.simd import Address, Count, Number, inner, primitive, store
from specchat.engine.cpu.softmax import entry, exponentials, fill, peak, sigmoids, total
from specchat.engine.memory.vectors import LANES

NEVER = np.float32(-np.inf)
"""The rank of an expert that cannot be chosen any more."""


@primitive
def put_number(builder: Any, address: Address, index: Count, value: Number) -> None:
    """Put a float32 at `address`, `index` elements further."""
    store(builder, value, address, index)


@inner
def leave_out(ranks: int, of_groups: int, count: int, groups: int, kept: int) -> None:
    """Leave `kept` of `groups` groups of `count` experts with their ranks; the others cannot be chosen any more.

    A group goes by the sum of its two largest ranks, of equal ones the lower first. `of_groups` float32 [groups].
    """
    size = count // groups
    for group in range(groups):
        first, second = NEVER, NEVER
        for i in range(group * size, (group + 1) * size):
            rank = entry(ranks, i)
            if rank > first:
                first, second = rank, first
            elif rank > second:
                second = rank
        put_number(of_groups, group, first + second)
    for group in range(groups):
        before = 0
        for other in range(groups):
            more = entry(of_groups, other) > entry(of_groups, group)
            if more or (other < group and entry(of_groups, other) == entry(of_groups, group)):
                before += 1
        if before >= kept:
            fill(ranks, group * size, (group + 1) * size, NEVER)


@inner
def choose(scores: int, padded: int, mixture: int, shares: int, chosen: int) -> None:
    """Choose a row's experts by its scores float32 [padded], which are overwritten; fill its shares and experts.

    Of equal scores the lower expert comes first. Scores that are no numbers count as the least: no expert is chosen
    twice, so every pair has room. Twice as many values after the scores are overwritten too.
    """
    count, top, correction = word(mixture, COUNT), word(mixture, TOP), word(mixture, CORRECTION)
    fill(scores, count, padded, NEVER)
    whole, summed = np.float32(1.0), np.float32(0.0)
    if word(mixture, SIGMOID):
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
    if word(mixture, KEPT_GROUPS) < word(mixture, GROUPS):
        leave_out(ranks, ranks + 4 * padded, count, word(mixture, GROUPS), word(mixture, KEPT_GROUPS))
    for k in range(top):
        best, found = NEVER, 0
        for i in range(count):
            if entry(ranks, i) > best:
                best, found = entry(ranks, i), i
        put_number(ranks, found, NEVER)
        put_word(chosen, k, found)
        put_number(shares, k, entry(scores, found) / whole)
        summed += entry(scores, found) / whole
    if word(mixture, RENORMALISED):
        for k in range(top):
            put_number(shares, k, entry(shares, k) / summed)
    if word(mixture, FACTORS):
        for k in range(top):
            put_number(shares, k, entry(shares, k) * entry(word(mixture, FACTORS), word(chosen, k)))


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


@inner
def route(
    begun: int,
    ended: int,
    x: int,
    x_row: int,
    router: int,
    mixture: int,
    kernels: int,
    extras: int,
    hidden: int,
    eps: np.float32,
    own: int,
    own_row: int,
) -> None:
    """Choose the experts of rows `begun`, ..., `ended` - 1 of x; arguments as in `experts.experts`.

    Where norms are apart, fill these rows of the inputs of experts and shared MLP; fill their shares of the latter.
    """
    top, padded = word(mixture, TOP), LANES * word(router, PANELS)
    inputs, inputs_row = x + 4 * begun * x_row, x_row
    if word(mixture, ROUTER_NORM):
        for r in range(begun, ended):
            row, place = x + 4 * r * x_row, 4 * r * hidden
            norm(row, word(mixture, PRE_EXPERTS), word(mixture, INPUTS) + place, hidden, eps)
            norm(row, word(mixture, PRE_SHARED), word(mixture, SHARED_INPUTS) + place, hidden, eps)
            norm(row, word(mixture, ROUTER_NORM), own + 4 * (r - begun) * own_row, hidden, eps)
        inputs, inputs_row = own, own_row
    scores, scores_row = word(mixture, BETWEEN) + 12 * begun * padded, 3 * padded
    multiply(ended - begun, inputs, inputs_row, router, kernels, extras, scores, scores_row, 0, padded // LANES)
    for r in range(begun, ended):
        shares, chosen = word(mixture, SHARES) + 4 * r * top, word(mixture, CHOSEN) + 8 * r * top
        choose(word(mixture, BETWEEN) + 4 * r * scores_row, padded, mixture, shares, chosen)
    if word(mixture, SHARED_GATE):
        # The buffer is free until the shared MLP runs.
        gate, row = router + 8 * COLUMNS * (3 + 2 * word(mixture, COUNT)), word(mixture, SHARED_ROW)
        beside = word(mixture, BESIDE) + 4 * begun * row
        at = x + 4 * begun * x_row
        multiply(ended - begun, at, x_row, gate, kernels, extras, beside, row, 0, word(gate, PANELS))
        for r in range(begun, ended):
            score = word(mixture, BESIDE) + 4 * r * row
            sigmoids(score, LANES)
            put_number(word(mixture, GATES), r, entry(score, 0))
