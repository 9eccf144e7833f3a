"""The softmax of a row of scores, in parts that each have one order of sums."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from specchat.engine.cpu.rowwise import exponential
from specchat.engine.cpu.simd import (
    F32,
    I32,
    VECTOR,
    broadcast,
    each_vector,
    load,
    primitive,
    reduce_lanes,
    splat,
    store,
    void_primitive,
)


@primitive
def fill(typing: Any, x: Any, first: Any, last: Any, value: Any) -> Any:
    """x[first] ... x[last - 1] = value, float32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, first, last, value = arguments
        with cgutils.for_range(builder, builder.sub(last, first)) as loop:
            store(builder, value, x, builder.add(first, loop.index))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3, types.float32), code


@primitive
def put_sink(typing: Any, sinks: Any, index: Any, shift: Any, out: Any, place: Any) -> Any:
    """out[place] = e**(sinks[index] - shift), float32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sinks, index, shift, out, place = arguments
        raised = exponential(builder, broadcast(builder, builder.fsub(load(builder, sinks, index, F32), shift)))
        store(builder, builder.extract_element(raised, ir.Constant(I32, 0)), out, place)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64, types.int64), code


@primitive
def entry(typing: Any, x: Any, index: Any) -> Any:
    """x[index], float32."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return load(builder, arguments[0], arguments[1], F32)

    return types.float32(types.int64, types.int64), code


@primitive
def total(typing: Any, x: Any, size: Any) -> Any:
    """The sum of `size` float32, a multiple of LANES."""
    return _reduced(0.0, lambda builder, a, b: builder.fadd(a, b))


@primitive
def peak(typing: Any, x: Any, size: Any) -> Any:
    """The largest of `size` float32, a multiple of LANES."""
    return _reduced(float("-inf"), lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _reduced(start: float, join: Callable[[Any, Any, Any], Any]) -> Any:
    """Make a reduction of the float32 at an address: vectors first, then the lanes of the result."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size = arguments
        slot = cgutils.alloca_once(builder, VECTOR)
        builder.store(splat(start), slot)
        each_vector(
            builder, size, lambda at: builder.store(join(builder, builder.load(slot), load(builder, x, at)), slot)
        )
        return reduce_lanes(builder, builder.load(slot), lambda a, b: join(builder, a, b))

    return types.float32(types.int64, types.int64), code


@primitive
def exponentials(typing: Any, x: Any, size: Any, shift: Any, scale: Any) -> Any:
    """x = e**((x - shift) * scale); float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size, shift, scale = arguments
        less, times = broadcast(builder, shift), broadcast(builder, scale)

        def one(at: Any) -> None:
            moved = builder.fmul(builder.fsub(load(builder, x, at), less), times)
            store(builder, exponential(builder, moved), x, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.float32), code


@primitive
def sigmoids(typing: Any, x: Any, size: Any) -> Any:
    """x = 1 / (1 + e**-x); float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, size = arguments

        def one(at: Any) -> None:
            store(builder, sigmoid(builder, load(builder, x, at)), x, at)

        each_vector(builder, size, one)

    return void_primitive([], 2, emit)


def sigmoid(builder: Any, x: Any) -> Any:
    """1 / (1 + e**-x)."""
    below = builder.fadd(exponential(builder, builder.fsub(splat(0.0), x)), splat(1.0))
    return builder.fdiv(splat(1.0), below)
