"""Operations on one row between the products: norms, rotary embeddings, the gate."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from specchat.engine.cpu.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    WORDS,
    broadcast,
    constant,
    each_vector,
    fma,
    load,
    primitive,
    reduce_lanes,
    splat,
    store,
    void_primitive,
)
from specchat.engine.model.vectors import LANES

HALF = 8
"""Lanes of a vector of half a head."""


@primitive
def norm(typing: Any, x: Any, weight: Any, out: Any, size: Any, eps: Any) -> Any:
    """out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, weight, out, size, eps = arguments
        mean = builder.fdiv(_dot(builder, x, x, size), builder.sitofp(size, F32))
        root = builder.call(builder.module.declare_intrinsic("llvm.sqrt", [F32]), [builder.fadd(mean, eps)])
        scale = broadcast(builder, builder.fdiv(ir.Constant(F32, 1.0), root))

        def one(at: Any) -> None:
            scaled = builder.fmul(load(builder, x, at), scale)
            store(builder, builder.fmul(scaled, load(builder, weight, at)), out, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4, types.float32), code


@primitive
def rotate(typing: Any, x: Any, cos: Any, sin: Any, out: Any, size: Any) -> Any:
    """out = x rotated by a row of `rope.tables`, cos and sin (Su 2021); float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, cos, sin, out, size = arguments
        kind, half = ir.VectorType(F32, HALF), builder.sdiv(size, constant(2))
        with cgutils.for_range(builder, builder.sdiv(half, constant(HALF))) as loop:
            first = builder.mul(loop.index, constant(HALF))
            second = builder.add(first, half)
            values = {place: load(builder, x, place, kind) for place in (first, second)}
            for own, other in ((first, second), (second, first)):
                straight = builder.fmul(values[own], load(builder, cos, own, kind))
                crossed = builder.fmul(values[other], load(builder, sin, own, kind))
                store(builder, builder.fadd(straight, crossed), out, own)

    return void_primitive([], 5, emit)


@primitive
def copy_vector(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = x; float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, out, size = arguments
        each_vector(builder, size, lambda at: store(builder, load(builder, x, at), out, at))

    return void_primitive([], 3, emit)


@primitive
def gather(typing: Any, x: Any, order: Any, out: Any, size: Any) -> Any:
    """out[k] = x[order[k]]; float32 and int32 [size]."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, order, out, size = arguments
        with cgutils.for_range(builder, size) as loop:
            place = builder.sext(load(builder, order, loop.index, I32), I64)
            store(builder, load(builder, x, place, F32), out, loop.index)

    return void_primitive([], 4, emit)


@primitive
def multiply_by(typing: Any, x: Any, size: Any, factor: Any) -> Any:
    """x = x * factor; float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size, factor = arguments
        times = broadcast(builder, factor)
        each_vector(builder, size, lambda at: store(builder, builder.fmul(load(builder, x, at), times), x, at))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), code


@primitive
def multiply_by_entry(typing: Any, x: Any, size: Any, factors: Any, index: Any) -> Any:
    """x = x * factors[index]; float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, size, factors, index = arguments
        times = broadcast(builder, load(builder, factors, index, F32))
        each_vector(builder, size, lambda at: store(builder, builder.fmul(load(builder, x, at), times), x, at))

    return void_primitive([], 4, emit)


@primitive
def add_scaled(typing: Any, x: Any, out: Any, size: Any, factor: Any) -> Any:
    """out = out + factor * x; float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out, size, factor = arguments
        times = broadcast(builder, factor)

        def one(at: Any) -> None:
            more = builder.fmul(load(builder, x, at), times)
            store(builder, builder.fadd(load(builder, out, at), more), out, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3, types.float32), code


@primitive
def add_vector(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = out + x; float32 [size], a multiple of LANES."""
    return _elementwise(lambda builder, a, b: builder.fadd(a, b))


@primitive
def multiply_vector(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = out * x; float32 [size], a multiple of LANES."""
    return _elementwise(lambda builder, a, b: builder.fmul(a, b))


def _elementwise(join: Callable[[Any, Any, Any], Any]) -> Any:
    """Make an elementwise operation: out = join(out, x)."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, out, size = arguments

        def one(at: Any) -> None:
            store(builder, join(builder, load(builder, out, at), load(builder, x, at)), out, at)

        each_vector(builder, size, one)

    return void_primitive([], 3, emit)


@primitive
def cap_vector(typing: Any, x: Any, size: Any, cap: Any) -> Any:
    """x = cap * tanh(x / cap); float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size, cap = arguments
        most = broadcast(builder, cap)

        def one(at: Any) -> None:
            # tanh(u) = 1 - 2 / (exp(2u) + 1)
            twice = builder.fdiv(builder.fmul(load(builder, x, at), splat(2.0)), most)
            below = builder.fadd(exponential(builder, twice), splat(1.0))
            store(builder, builder.fmul(most, builder.fsub(splat(1.0), builder.fdiv(splat(2.0), below))), x, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), code


def _dot(builder: Any, a: Any, b: Any, size: Any) -> Any:
    """Sum of a[i] b[i], float32."""
    slot = cgutils.alloca_once(builder, VECTOR)
    builder.store(splat(0.0), slot)
    each_vector(
        builder,
        size,
        lambda at: builder.store(fma(builder, load(builder, a, at), load(builder, b, at), builder.load(slot)), slot),
    )
    return reduce_lanes(builder, builder.load(slot), builder.fadd)


def exponential(builder: Any, x: Any) -> Any:
    """e**x within 2 units in the last place, with x clamped to -87 ... 88: Cephes' polynomial."""
    for least, bound in ((True, -87.0), (False, 88.0)):
        outside = builder.fcmp_ordered("<" if least else ">", x, splat(bound))
        x = builder.select(outside, splat(bound), x)
    # Adding 1.5 * 2**23 rounds a small number to a whole one.
    whole = builder.fsub(fma(builder, x, splat(1.44269504), splat(12582912.0)), splat(12582912.0))
    rest = fma(builder, whole, splat(-0.693359375), x)
    rest = fma(builder, whole, splat(2.12194440e-4), rest)
    power = splat(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        power = fma(builder, power, rest, splat(factor))
    power = fma(builder, power, builder.fmul(rest, rest), builder.fadd(rest, splat(1.0)))
    exponent = builder.add(builder.fptosi(whole, WORDS), ir.Constant(WORDS, [127] * LANES))
    bits = builder.shl(exponent, ir.Constant(WORDS, [23] * LANES))
    return builder.fmul(power, builder.bitcast(bits, VECTOR))
