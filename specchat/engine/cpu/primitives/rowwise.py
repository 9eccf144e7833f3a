"""Operations on one row between the products: norms, rotary embeddings, softmax in one order of sums."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.activations import exponential
from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    Address,
    Count,
    Number,
    broadcast,
    constant,
    each_vector,
    fma,
    load,
    map_vectors,
    primitive,
    reduce_lanes,
    splat,
    store,
)

HALF = 8
"""Lanes of a vector of half a head."""


@primitive
def norm(builder: Any, x: Address, weight: Address, out: Address, size: Count, eps: Number) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); float32 [size], a multiple of LANES."""
    mean = builder.fdiv(_dot(builder, x, x, size), builder.sitofp(size, F32))
    root = builder.call(builder.module.declare_intrinsic("llvm.sqrt", [F32]), [builder.fadd(mean, eps)])
    scale = broadcast(builder, builder.fdiv(ir.Constant(F32, 1.0), root))
    map_vectors(builder, size, lambda x, w: builder.fmul(builder.fmul(x, scale), w), out, x, weight)


@primitive
def centre(builder: Any, x: Address, out: Address, size: Count, count: Count) -> None:
    """out = x less the sum of x over `count`; float32 [size], a multiple of LANES."""
    mean = builder.fdiv(_reduced(builder, x, size, 0.0, builder.fadd), builder.sitofp(count, F32))
    less = broadcast(builder, mean)
    map_vectors(builder, size, lambda x: builder.fsub(x, less), out, x)


@primitive
def rotate(builder: Any, x: Address, cos: Address, sin: Address, out: Address, size: Count) -> None:
    """out = x rotated by a row of `rope.tables`, cos and sin (Su 2021); float32 [size], a multiple of LANES."""
    kind, half = ir.VectorType(F32, HALF), builder.sdiv(size, constant(2))
    with cgutils.for_range(builder, builder.sdiv(half, constant(HALF))) as loop:
        first = builder.mul(loop.index, constant(HALF))
        second = builder.add(first, half)
        values = {place: load(builder, x, place, kind) for place in (first, second)}
        for own, other in ((first, second), (second, first)):
            straight = builder.fmul(values[own], load(builder, cos, own, kind))
            crossed = builder.fmul(values[other], load(builder, sin, own, kind))
            store(builder, builder.fadd(straight, crossed), out, own)


@primitive
def copy_vector(builder: Any, x: Address, out: Address, size: Count) -> None:
    """out = x; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda x: x, out, x)


@primitive
def gather(builder: Any, x: Address, order: Address, out: Address, size: Count) -> None:
    """out[k] = x[order[k]]; float32 and int32 [size]."""
    with cgutils.for_range(builder, size) as loop:
        place = builder.sext(load(builder, order, loop.index, I32), I64)
        store(builder, load(builder, x, place, F32), out, loop.index)


@primitive
def multiply_by(builder: Any, x: Address, size: Count, factor: Number) -> None:
    """x = x * factor; float32 [size], a multiple of LANES."""
    times = broadcast(builder, factor)
    map_vectors(builder, size, lambda x: builder.fmul(x, times), x, x)


@primitive
def multiply_by_entry(builder: Any, x: Address, size: Count, factors: Address, index: Count) -> None:
    """x = x * factors[index]; float32 [size], a multiple of LANES."""
    times = broadcast(builder, load(builder, factors, index, F32))
    map_vectors(builder, size, lambda x: builder.fmul(x, times), x, x)


@primitive
def add_scaled(builder: Any, x: Address, out: Address, size: Count, factor: Number) -> None:
    """out = out + factor * x; float32 [size], a multiple of LANES."""
    times = broadcast(builder, factor)
    map_vectors(builder, size, lambda x, sums: builder.fadd(sums, builder.fmul(x, times)), out, x, out)


@primitive
def add_vector(builder: Any, x: Address, out: Address, size: Count) -> None:
    """out = out + x; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, builder.fadd, out, out, x)


@primitive
def multiply_vector(builder: Any, x: Address, out: Address, size: Count) -> None:
    """out = out * x; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, builder.fmul, out, out, x)


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
