"""Vector code of recurrent states: a token's change of a few columns of a state, its gates, its convolution.

Columns of a state do not depend on each other, so how many go together changes no bit.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from numba.core import cgutils

from specchat.engine.cpu.primitives.activations import exponential, sigmoid
from specchat.engine.cpu.primitives.simd import (
    F32,
    VECTOR,
    Address,
    Count,
    broadcast,
    constant,
    each_vector,
    fma,
    load,
    map_vectors,
    primitive,
    splat,
    store,
    wide_vectors,
)
from specchat.engine.memory.vectors import LANES

TOGETHER = 4 if wide_vectors() else 2
"""Vectors of columns whose sums fit in registers."""
SUMS = 2
"""Partial sums of each column, over every second row."""
TERMS = 7
"""Terms of the series of the logarithm: the rest is below 2e-8."""


@primitive
def advance(
    builder: Any, vectors: int, state: Address, rows: Count, key: Address, update: Address, decay: Address
) -> None:
    """state = decay state + key update^T for `vectors` vectors of columns, a constant.

    The state is float32 [rows, columns]; key [rows], update [columns], decay [1].
    """
    factor = broadcast(builder, load(builder, decay, constant(0), F32))
    updates = [load(builder, update, constant(LANES * v)) for v in range(vectors)]
    with cgutils.for_range(builder, rows) as loop:
        place = builder.mul(loop.index, constant(LANES * vectors))
        _changed(builder, state, place, factor, _number(builder, key, loop.index), updates)


@primitive
def step(
    builder: Any,
    vectors: int,
    state: Address,
    rows: Count,
    key: Address,
    query: Address,
    write: Address,
    decay: Address,
    value: Address,
    update: Address,
    skip: Address,
) -> None:
    """One token of the delta rule: `advance` by update = write (value - decay state^T key); value = state^T query.

    With an address `skip` one of Mamba 2: by update = write value; value = state^T query + skip value. Arguments are as
    in `advance`; query [rows], write [1], value [columns], skip [1].
    """
    corrects = builder.icmp_signed("==", skip, constant(0))
    factor, writes = (broadcast(builder, load(builder, one, constant(0), F32)) for one in (decay, write))

    def found(place: Any, index: Any) -> tuple[Any, list[Any]]:
        return _number(builder, key, index), [
            builder.fmul(load(builder, state, builder.add(place, constant(LANES * v))), factor) for v in range(vectors)
        ]

    values = [load(builder, value, constant(LANES * v)) for v in range(vectors)]
    known, updates = [cgutils.alloca_once_value(builder, one) for one in values], []
    with builder.if_then(corrects):
        for slot, one, new in zip(known, _sums(builder, vectors, rows, found), values, strict=True):
            builder.store(builder.fsub(new, one), slot)
    for v, slot in enumerate(known):
        updates.append(builder.fmul(builder.load(slot), writes))
        store(builder, updates[-1], update, constant(LANES * v))

    def changed(place: Any, index: Any) -> tuple[Any, list[Any]]:
        made = _changed(builder, state, place, factor, _number(builder, key, index), updates)
        return _number(builder, query, index), made

    made = [cgutils.alloca_once_value(builder, one) for one in _sums(builder, vectors, rows, changed)]
    with builder.if_then(builder.not_(corrects)):
        through = broadcast(builder, load(builder, skip, constant(0), F32))
        for slot, new in zip(made, values, strict=True):
            builder.store(fma(builder, through, new, builder.load(slot)), slot)
    for v, slot in enumerate(made):
        store(builder, builder.load(slot), value, constant(LANES * v))


def _number(builder: Any, numbers: Any, index: Any) -> Any:
    """One of some numbers, in every lane."""
    return broadcast(builder, load(builder, numbers, index, F32))


def _changed(builder: Any, state: Any, place: Any, factor: Any, key: Any, updates: list[Any]) -> list[Any]:
    """Change a row of a state, and return its vectors."""
    made = []
    for v, update in enumerate(updates):
        at = builder.add(place, constant(LANES * v))
        made.append(fma(builder, key, update, builder.fmul(load(builder, state, at), factor)))
        store(builder, made[-1], state, at)
    return made


def _sums(builder: Any, count: int, rows: Any, of: Callable[[Any, Any], tuple[Any, list[Any]]]) -> list[Any]:
    """Sum over rows, of an even number, of what `of(place, index)` returns: a factor, and `count` vectors."""
    slots = [[cgutils.alloca_once(builder, VECTOR) for _ in range(count)] for _ in range(SUMS)]
    for slot in (slot for some in slots for slot in some):
        builder.store(splat(0.0), slot)
    with cgutils.for_range(builder, builder.sdiv(rows, constant(SUMS))) as loop:
        for part, some in enumerate(slots):
            index = builder.add(builder.mul(loop.index, constant(SUMS)), constant(part))
            factor, vectors = of(builder.mul(index, constant(LANES * count)), index)
            for slot, vector in zip(some, vectors, strict=True):
                builder.store(fma(builder, factor, vector, builder.load(slot)), slot)
    return [builder.fadd(*map(builder.load, pair)) for pair in zip(*slots, strict=True)]


@primitive
def open_gates(
    builder: Any, apart: int, write: Address, decay: Address, rates: Address, shifts: Address, size: Count
) -> None:
    """write = sigmoid(write); decay = e**(-rates softplus(decay + shifts)); float32 [size], a multiple of LANES.

    Unless `apart`, a constant: write = softplus(write + shifts); decay = e**(-rates write).
    """

    def one(at: Any) -> None:
        if apart:
            store(builder, sigmoid(builder, load(builder, write, at)), write, at)
        forget = load(builder, decay if apart else write, at)
        grown = _softplus(builder, builder.fadd(forget, load(builder, shifts, at)))
        if not apart:
            store(builder, grown, write, at)
        less = builder.fsub(splat(0.0), builder.fmul(load(builder, rates, at), grown))
        store(builder, exponential(builder, less), decay, at)

    each_vector(builder, size, one)


def _softplus(builder: Any, x: Any) -> Any:
    """log(1 + e**x) as max(x, 0) + log(1 + y) with y = e**-|x|, and log(1 + y) = 2 artanh(y / (2 + y))."""
    above = builder.fcmp_ordered(">", x, splat(0.0))
    negative = builder.select(above, builder.fsub(splat(0.0), x), x)
    y = exponential(builder, negative)
    s = builder.fdiv(y, builder.fadd(y, splat(2.0)))
    square, series = builder.fmul(s, s), splat(1.0 / (2 * TERMS - 1))
    for term in reversed(range(TERMS - 1)):
        series = fma(builder, series, square, splat(1.0 / (2 * term + 1)))
    return fma(builder, builder.fmul(s, splat(2.0)), series, builder.select(above, x, splat(0.0)))


@primitive
def add_products(builder: Any, x: Address, weights: Address, out: Address, size: Count) -> None:
    """out = out + x * weights; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, partial(fma, builder), out, x, weights, out)


@primitive
def activate(builder: Any, x: Address, size: Count) -> None:
    """x = silu(x); float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda x: builder.fmul(x, sigmoid(builder, x)), x, x)


@primitive
def copy_numbers(builder: Any, x: Address, out: Address, size: Count) -> None:
    """out = x; float32 [size] of any size."""
    with cgutils.for_range(builder, size) as loop:
        store(builder, load(builder, x, loop.index, F32), out, loop.index)
