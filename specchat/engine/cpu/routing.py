"""The experts that rows choose: the router's scores, the shares of the likeliest, and the pairs in order of experts."""

from typing import Any

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import word
from specchat.engine.cpu.mixtures import (
    BESIDE,
    BETWEEN,
    CHOSEN,
    COUNT,
    FACTORS,
    GATES,
    INPUTS,
    PRE_EXPERTS,
    PRE_SHARED,
    RENORMALISED,
    ROUTER_NORM,
    SHARED_GATE,
    SHARED_INPUTS,
    SHARED_ROW,
    SHARES,
    TOP,
)
from specchat.engine.cpu.products import COLUMNS, PANELS, multiply
from specchat.engine.cpu.rowwise import norm
from specchat.engine.cpu.simd import I64, inner, primitive, store
from specchat.engine.cpu.simd import at as place_of
from specchat.engine.cpu.softmax import entry, exponentials, fill, peak, sigmoids, total
from specchat.engine.model.vectors import LANES

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


@primitive
def put_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Put an int64 at `address`, `index` words further."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], place_of(builder, arguments[0], arguments[1], I64, 8), align=8)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), code


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
    of: int,
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
    top, padded = word(mixture, TOP), LANES * word(of, PANELS)
    inputs, inputs_row = x + 4 * begun * x_row, x_row
    if word(mixture, ROUTER_NORM):
        for r in range(begun, ended):
            row, place = x + 4 * r * x_row, 4 * r * hidden
            norm(row, word(mixture, PRE_EXPERTS), word(mixture, INPUTS) + place, hidden, eps)
            norm(row, word(mixture, PRE_SHARED), word(mixture, SHARED_INPUTS) + place, hidden, eps)
            norm(row, word(mixture, ROUTER_NORM), own + 4 * (r - begun) * own_row, hidden, eps)
        inputs, inputs_row = own, own_row
    scores = word(mixture, BETWEEN) + 4 * begun * padded
    multiply(ended - begun, inputs, inputs_row, of, kernels, extras, scores, padded, 0, padded // LANES)
    for r in range(begun, ended):
        shares, chosen = word(mixture, SHARES) + 4 * r * top, word(mixture, CHOSEN) + 8 * r * top
        choose(word(mixture, BETWEEN) + 4 * r * padded, padded, mixture, shares, chosen)
    if word(mixture, SHARED_GATE):
        # The buffer is free until the shared MLP runs.
        gate, row = of + 8 * COLUMNS * (3 + 2 * word(mixture, COUNT)), word(mixture, SHARED_ROW)
        beside = word(mixture, BESIDE) + 4 * begun * row
        at = x + 4 * begun * x_row
        multiply(ended - begun, at, x_row, gate, kernels, extras, beside, row, 0, word(gate, PANELS))
        for r in range(begun, ended):
            score = word(mixture, BESIDE) + 4 * r * row
            sigmoids(score, LANES)
            put_number(word(mixture, GATES), r, entry(score, 0))
