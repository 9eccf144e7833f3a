"""The softmax of a row of scores, in parts that each have one order of sums."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.rowwise import exponential, sigmoid_divisor
from specchat.engine.cpu.simd import (
    F32,
    I32,
    VECTOR,
    Address,
    Count,
    Number,
    broadcast,
    each_vector,
    load,
    map_vectors,
    primitive,
    reduce_lanes,
    splat,
    store,
)


@primitive
def fill(builder: Any, x: Address, first: Count, last: Count, value: Number) -> None:
    """x[first] ... x[last - 1] = value, float32."""
    with cgutils.for_range(builder, builder.sub(last, first)) as loop:
        store(builder, value, x, builder.add(first, loop.index))


@primitive
def put_sink(builder: Any, sinks: Address, index: Count, shift: Number, out: Address, place: Count) -> None:
    """out[place] = e**(sinks[index] - shift), float32."""
    raised = exponential(builder, broadcast(builder, builder.fsub(load(builder, sinks, index, F32), shift)))
    store(builder, builder.extract_element(raised, ir.Constant(I32, 0)), out, place)


@primitive
def entry(builder: Any, x: Address, index: Count) -> Number:
    """x[index], float32."""
    return load(builder, x, index, F32)


@primitive
def total(builder: Any, x: Address, size: Count) -> Number:
    """The sum of `size` float32, a multiple of LANES."""
    return _reduced(builder, x, size, 0.0, builder.fadd)


@primitive
def peak(builder: Any, x: Address, size: Count) -> Number:
    """The largest of `size` float32, a multiple of LANES."""
    return _reduced(builder, x, size, float("-inf"), lambda a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _reduced(builder: Any, x: Any, size: Any, start: float, join: Callable[[Any, Any], Any]) -> Any:
    """Reduce `size` float32 at an address: vectors first, then the lanes of the result."""
    slot = cgutils.alloca_once(builder, VECTOR)
    builder.store(splat(start), slot)
    each_vector(builder, size, lambda at: builder.store(join(builder.load(slot), load(builder, x, at)), slot))
    return reduce_lanes(builder, builder.load(slot), join)


@primitive
def exponentials(builder: Any, x: Address, size: Count, shift: Number, scale: Number) -> None:
    """x = e**((x - shift) * scale); float32 [size], a multiple of LANES."""
    less, times = broadcast(builder, shift), broadcast(builder, scale)
    map_vectors(builder, size, lambda x: exponential(builder, builder.fmul(builder.fsub(x, less), times)), x, x)


@primitive
def sigmoids(builder: Any, x: Address, size: Count) -> None:
    """x = 1 / (1 + e**-x); float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda x: sigmoid(builder, x), x, x)


def sigmoid(builder: Any, x: Any) -> Any:
    """1 / (1 + e**-x)."""
    return builder.fdiv(splat(1.0), sigmoid_divisor(builder, x))
