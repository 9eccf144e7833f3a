"""Operations on one row between the products: norms, rotary embeddings, the gate."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.simd import (
    F32,
    I32,
    I64,
    VECTOR,
    WORDS,
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
from specchat.engine.memory.vectors import LANES

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


@primitive
def cap_vector(builder: Any, x: Address, size: Count, cap: Number) -> None:
    """x = cap * tanh(x / cap); float32 [size], a multiple of LANES."""
    most = broadcast(builder, cap)

    def capped(x: Any) -> Any:
        # tanh(u) = 1 - 2 / (exp(2u) + 1)
        twice = builder.fdiv(builder.fmul(x, splat(2.0)), most)
        below = builder.fadd(exponential(builder, twice), splat(1.0))
        return builder.fmul(most, builder.fsub(splat(1.0), builder.fdiv(splat(2.0), below)))

    map_vectors(builder, size, capped, x, x)


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


def sigmoid_divisor(builder: Any, x: Any) -> Any:
    """1 + e**-x, by which 1 is divided for the sigmoid."""
    return builder.fadd(exponential(builder, builder.fsub(splat(0.0), x)), splat(1.0))
