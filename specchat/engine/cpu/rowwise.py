"""What stands between the products, a row at a time: norms, positions, attention, the gate."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from specchat.engine.cpu.simd import (
    F32,
    I32,
    VECTOR,
    WORDS,
    constant,
    each_vector,
    emitted,
    fma,
    folded,
    inner,
    load,
    primitive,
    splat,
    spread,
    store,
)
from specchat.engine.cpu.tiles import FLOAT32, tile
from specchat.engine.model.vectors import LANES

TOGETHER = 4
"""Keys that are multiplied at a time: their sums end in one vector."""
HALF = 8
"""Lanes of what goes through half a head at a time."""


@primitive
def norm(typing: Any, x: Any, weight: Any, out: Any, size: Any, eps: Any) -> Any:
    """out = x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019); float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, weight, out, size, eps = arguments
        mean = builder.fdiv(_dot(builder, x, x, size), builder.sitofp(size, F32))
        root = builder.call(builder.module.declare_intrinsic("llvm.sqrt", [F32]), [builder.fadd(mean, eps)])
        scale = spread(builder, builder.fdiv(ir.Constant(F32, 1.0), root))

        def one(at: Any) -> None:
            scaled = builder.fmul(load(builder, x, at), scale)
            store(builder, builder.fmul(scaled, load(builder, weight, at)), out, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4, types.float32), code


@primitive
def turned(typing: Any, x: Any, cos: Any, sin: Any, out: Any, size: Any) -> Any:
    """x at a position, whose row of `rope.tables` cos and sin are: float32 [size], a multiple of LANES."""

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

    return emitted([], 5, emit)


@primitive
def copied(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = x; float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, out, size = arguments
        each_vector(builder, size, lambda at: store(builder, load(builder, x, at), out, at))

    return emitted([], 3, emit)


@primitive
def added(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = out + x; float32 [size], a multiple of LANES."""
    return _joined(lambda builder, a, b: builder.fadd(a, b))


@primitive
def scaled(typing: Any, x: Any, out: Any, size: Any) -> Any:
    """out = out * x; float32 [size], a multiple of LANES."""
    return _joined(lambda builder, a, b: builder.fmul(a, b))


def _joined(join: Callable[[Any, Any, Any], Any]) -> Any:
    """Of two addresses and a count: the second's elements joined with the first's."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, out, size = arguments

        def one(at: Any) -> None:
            store(builder, join(builder, load(builder, out, at), load(builder, x, at)), out, at)

        each_vector(builder, size, one)

    return emitted([], 3, emit)


@inner
def attend(query: int, keys: int, values: int, seen: int, size: int, scale: float, scores: int, out: int) -> None:
    """out = softmax(query keys^T scale) values over the first `seen` entries of the cache.

    query and out are float32 [size], a multiple of LANES; keys and values [capacity, size], a multiple of TOGETHER;
    scores [seen + LANES] are written over.
    """
    padded = -(-seen // LANES) * LANES
    _dots(query, keys, size, -(-seen // TOGETHER) * TOGETHER, scores)
    _filled(scores, seen, padded)
    _exponentials(scores, padded, _peak(scores, padded), scale)
    share = 1.0 / _total(scores, padded)
    d = 0
    while d + 4 * LANES <= size:
        tile(FLOAT32, 1, 4, LANES, scores, 0, values + 4 * d, size, LANES, seen, out + 4 * d, 0)
        d += 4 * LANES
    while d < size:
        tile(FLOAT32, 1, 1, LANES, scores, 0, values + 4 * d, size, LANES, seen, out + 4 * d, 0)
        d += LANES
    _times(out, size, share)


@primitive
def gated(typing: Any, gate: Any, up: Any, size: Any) -> Any:
    """gate = silu(gate) * up; float32 [size], a multiple of LANES."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        gate, up, size = arguments

        def one(at: Any) -> None:
            x = load(builder, gate, at)
            below = builder.fadd(exponential(builder, builder.fsub(splat(0.0), x)), splat(1.0))
            store(builder, builder.fmul(builder.fdiv(x, below), load(builder, up, at)), gate, at)

        each_vector(builder, size, one)

    return emitted([], 3, emit)


def _dot(builder: Any, a: Any, b: Any, size: Any) -> Any:
    """The sum float32 of a[i] b[i]."""
    slot = cgutils.alloca_once(builder, VECTOR)
    builder.store(splat(0.0), slot)
    each_vector(
        builder,
        size,
        lambda at: builder.store(fma(builder, load(builder, a, at), load(builder, b, at), builder.load(slot)), slot),
    )
    return folded(builder, builder.load(slot), builder.fadd)


@primitive
def _dots(typing: Any, query: Any, keys: Any, size: Any, count: Any, out: Any) -> Any:
    """out[i] = the sum of query[j] keys[i, j] over `size` j, a multiple of LANES, for `count` keys, of TOGETHER."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        query, keys, size, count, out = arguments
        with cgutils.for_range(builder, builder.sdiv(count, constant(TOGETHER))) as loop:
            first = builder.mul(loop.index, constant(TOGETHER))
            slots = [cgutils.alloca_once(builder, VECTOR) for _ in range(TOGETHER)]
            for slot in slots:
                builder.store(splat(0.0), slot)

            def add(at: Any, first: Any = first, slots: list[Any] = slots) -> None:
                shared = load(builder, query, at)
                for i, slot in enumerate(slots):
                    place = builder.add(builder.mul(builder.add(first, constant(i)), size), at)
                    builder.store(fma(builder, shared, load(builder, keys, place), builder.load(slot)), slot)

            each_vector(builder, size, add)
            store(builder, _four_sums(builder, [builder.load(slot) for slot in slots]), out, first)

    return emitted([], 5, emit)


def _four_sums(builder: Any, vectors: list[Any]) -> Any:
    """The sums of the lanes of four vectors, one a lane, all of them joined in one order."""

    def picked(a: Any, b: Any, lanes: list[int]) -> Any:
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    def halved(a: Any, b: Any, run: int) -> Any:
        """Runs of 2 `run` lanes of a, then of b, each half the other's added."""
        lanes = [i for i in range(2 * a.type.count) if i // run % 2 == 0]
        return builder.fadd(picked(a, b, lanes), picked(a, b, [i + run for i in lanes]))

    eights = [builder.fadd(picked(v, v, list(range(8))), picked(v, v, list(range(8, 16)))) for v in vectors]
    pairs = [halved(eights[0], eights[1], 4), halved(eights[2], eights[3], 4)]
    twos = halved(pairs[0], pairs[1], 2)
    return builder.fadd(picked(twos, twos, [0, 2, 4, 6]), picked(twos, twos, [1, 3, 5, 7]))


@primitive
def _filled(typing: Any, x: Any, first: Any, last: Any) -> Any:
    """x[first] ... x[last - 1] = -inf, float32."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, first, last = arguments
        with cgutils.for_range(builder, builder.sub(last, first)) as loop:
            store(builder, ir.Constant(F32, float("-inf")), x, builder.add(first, loop.index))

    return emitted([], 3, emit)


@primitive
def _times(typing: Any, x: Any, size: Any, factor: Any) -> Any:
    """x = x * factor; float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size, factor = arguments
        times = spread(builder, factor)
        each_vector(builder, size, lambda at: store(builder, builder.fmul(load(builder, x, at), times), x, at))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), code


@primitive
def _total(typing: Any, x: Any, size: Any) -> Any:
    """The sum of `size` float32, a multiple of LANES."""
    return _reduced(0.0, lambda builder, a, b: builder.fadd(a, b))


@primitive
def _peak(typing: Any, x: Any, size: Any) -> Any:
    """The largest of `size` float32, a multiple of LANES."""
    return _reduced(float("-inf"), lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _reduced(start: float, join: Callable[[Any, Any, Any], Any]) -> Any:
    """The lanes joined, and then each other; of an address and a count."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size = arguments
        slot = cgutils.alloca_once(builder, VECTOR)
        builder.store(splat(start), slot)
        each_vector(
            builder, size, lambda at: builder.store(join(builder, builder.load(slot), load(builder, x, at)), slot)
        )
        return folded(builder, builder.load(slot), lambda a, b: join(builder, a, b))

    return types.float32(types.int64, types.int64), code


@primitive
def _exponentials(typing: Any, x: Any, size: Any, shift: Any, scale: Any) -> Any:
    """x = e**((x - shift) * scale); float32 [size], a multiple of LANES."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, size, shift, scale = arguments
        less, times = spread(builder, shift), spread(builder, scale)

        def one(at: Any) -> None:
            moved = builder.fmul(builder.fsub(load(builder, x, at), less), times)
            store(builder, exponential(builder, moved), x, at)

        each_vector(builder, size, one)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.float32), code


def exponential(builder: Any, x: Any) -> Any:
    """e**x within 2 units in the last place, from e**-87 to e**88 and these beyond: Cephes' polynomial."""
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
