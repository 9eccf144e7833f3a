"""Vector code of Gated DeltaNet: a token's change of a few columns of a state, its gates, its convolution.

Columns of a state do not depend on each other, so how many go together changes no bit.
"""

from collections.abc import Callable
from typing import Any

from numba.core import cgutils

from specchat.engine.cpu.rowwise import exponential
from specchat.engine.cpu.simd import (
    F32,
    VECTOR,
    broadcast,
    constant,
    constants_primitive,
    each_vector,
    fma,
    load,
    primitive,
    splat,
    store,
    void_primitive,
    wide_vectors,
)
from specchat.engine.cpu.softmax import sigmoid
from specchat.engine.model.vectors import LANES

TOGETHER = 4 if wide_vectors() else 2
"""Vectors of columns whose sums fit in registers."""
SUMS = 2
"""Partial sums of each column, over every second row."""
TERMS = 7
"""Terms of the series of the logarithm: the rest is below 2e-8."""


@constants_primitive
def advance(typing: Any, vectors: Any, state: Any, rows: Any, key: Any, update: Any, decay: Any) -> Any:
    """state = decay state + key update^T for `vectors` vectors of columns, a constant.

    The state is float32 [rows, columns]; key [rows], update [columns], decay [1].
    """

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        count = vectors.literal_value
        _, state, rows, key, update, decay = arguments
        factor = broadcast(builder, load(builder, decay, constant(0), F32))
        updates = [load(builder, update, constant(LANES * v)) for v in range(count)]
        with cgutils.for_range(builder, rows) as loop:
            place = builder.mul(loop.index, constant(LANES * count))
            _changed(builder, state, place, factor, _number(builder, key, loop.index), updates)

    return void_primitive([vectors], 5, emit)


@constants_primitive
def step(
    typing: Any,
    vectors: Any,
    state: Any,
    rows: Any,
    key: Any,
    query: Any,
    write: Any,
    decay: Any,
    value: Any,
    update: Any,
) -> Any:
    """One token of the delta rule: `advance` by update = write (value - decay state^T key); value = state^T query.

    Arguments are as in `advance`; query [rows], write [1], value [columns].
    """

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        count = vectors.literal_value
        _, state, rows, key, query, write, decay, value, update = arguments
        factor, writes = (broadcast(builder, load(builder, one, constant(0), F32)) for one in (decay, write))

        def found(place: Any, index: Any) -> tuple[Any, list[Any]]:
            return _number(builder, key, index), [
                builder.fmul(load(builder, state, builder.add(place, constant(LANES * v))), factor)
                for v in range(count)
            ]

        known, updates = _sums(builder, count, rows, found), []
        for v, one in enumerate(known):
            missing = builder.fsub(load(builder, value, constant(LANES * v)), one)
            updates.append(builder.fmul(missing, writes))
            store(builder, updates[-1], update, constant(LANES * v))

        def changed(place: Any, index: Any) -> tuple[Any, list[Any]]:
            made = _changed(builder, state, place, factor, _number(builder, key, index), updates)
            return _number(builder, query, index), made

        for v, one in enumerate(_sums(builder, count, rows, changed)):
            store(builder, one, value, constant(LANES * v))

    return void_primitive([vectors], 8, emit)


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
def open_gates(typing: Any, write: Any, decay: Any, rates: Any, shifts: Any, size: Any) -> Any:
    """write = sigmoid(write); decay = e**(-rates softplus(decay + shifts)); float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        write, decay, rates, shifts, size = arguments

        def one(at: Any) -> None:
            store(builder, sigmoid(builder, load(builder, write, at)), write, at)
            grown = _softplus(builder, builder.fadd(load(builder, decay, at), load(builder, shifts, at)))
            less = builder.fsub(splat(0.0), builder.fmul(load(builder, rates, at), grown))
            store(builder, exponential(builder, less), decay, at)

        each_vector(builder, size, one)

    return void_primitive([], 5, emit)


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
def add_products(typing: Any, x: Any, weights: Any, out: Any, size: Any) -> Any:
    """out = out + x * weights; float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, weights, out, size = arguments

        def one(at: Any) -> None:
            made = fma(builder, load(builder, x, at), load(builder, weights, at), load(builder, out, at))
            store(builder, made, out, at)

        each_vector(builder, size, one)

    return void_primitive([], 4, emit)


@primitive
def activate(typing: Any, x: Any, size: Any) -> Any:
    """x = silu(x); float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, size = arguments

        def one(at: Any) -> None:
            value = load(builder, x, at)
            store(builder, builder.fmul(value, sigmoid(builder, value)), x, at)

        each_vector(builder, size, one)

    return void_primitive([], 2, emit)


@primitive
def copy_numbers(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = x; float32 [size] of any size."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, out, size = arguments
        with cgutils.for_range(builder, size) as loop:
            store(builder, load(builder, x, loop.index, F32), out, loop.index)

    return void_primitive([], 3, emit)
