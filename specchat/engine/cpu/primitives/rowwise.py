"""Operations on one row between the products: norms, rotary embeddings, softmax in one order of sums, gates."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specchat.engine.cpu.primitives.simd import (
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
    inner,
    load,
    map_vectors,
    primitive,
    reduce_lanes,
    splat,
    store,
)
from specchat.engine.memory.vectors import LANES
from specchat.engine.recipe import Activation

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


SILU, GELU, CLAMPED, UNGATED_GELU, RELU2, XIELU = range(6)
CODES: dict[tuple[Activation, bool], int] = {
    ("silu", False): SILU,
    ("gelu_tanh", False): GELU,
    ("clamped_swiglu", False): CLAMPED,
    ("gelu_tanh", True): UNGATED_GELU,
    ("relu2", True): RELU2,
    ("xielu", True): XIELU,
}
"""Codes of activations, gated and, from UNGATED_GELU on, `ungated`."""


@inner
def gate_by(activation: int, gate: int, up: int, size: int) -> None:
    """gate = the gate of `activation`, a code, times up; float32 [size], a multiple of LANES."""
    if activation == GELU:
        gate_gelu(gate, up, size)
    elif activation == CLAMPED:
        gate_clamped(gate, up, size)
    else:
        gate_silu(gate, up, size)


@primitive
def gate_silu(builder: Any, gate: Address, up: Address, size: Count) -> None:
    """gate = silu(gate) * up; float32 [size], a multiple of LANES."""
    map_vectors(
        builder, size, lambda x, up: builder.fmul(builder.fdiv(x, sigmoid_divisor(builder, x)), up), gate, gate, up
    )


@primitive
def gate_gelu(builder: Any, gate: Address, up: Address, size: Count) -> None:
    """gate = gelu(gate) * up, by tanh (Hendrycks and Gimpel 2016); float32 [size], a multiple of LANES."""

    map_vectors(builder, size, lambda x, up: builder.fmul(_gelu(builder, x), up), gate, gate, up)


@primitive
def gate_clamped(builder: Any, gate: Address, up: Address, size: Count) -> None:
    """gate = g sigmoid(1.702 g) (u + 1) with g = min(gate, 7) and u = up between -7 and 7 (gpt-oss, OpenAI 2025)."""

    def bounded(x: Any, least: bool, bound: float) -> Any:
        outside = builder.fcmp_ordered("<" if least else ">", x, splat(bound))
        return builder.select(outside, splat(bound), x)

    def clamped(g: Any, u: Any) -> Any:
        g = bounded(g, False, 7.0)
        u = builder.fadd(bounded(bounded(u, False, 7.0), True, -7.0), splat(1.0))
        below = builder.fadd(exponential(builder, builder.fmul(splat(-1.702), g)), splat(1.0))
        return builder.fmul(builder.fdiv(g, below), u)

    map_vectors(builder, size, clamped, gate, gate, up)


@primitive
def close_gate(builder: Any, x: Address, gate: Address, out: Address, size: Count) -> None:
    """out = x * sigmoid(gate); float32 [size], a multiple of LANES. What is written may lie before x."""
    map_vectors(builder, size, lambda gate, x: builder.fdiv(x, sigmoid_divisor(builder, gate)), out, gate, x)


def _gelu(builder: Any, x: Any) -> Any:
    # (1 + tanh(u)) / 2 is the sigmoid of 2u; u = sqrt(2 / pi) (x + 0.044715 x^3).
    cubic = fma(builder, builder.fmul(x, x), splat(0.0713548162726), splat(1.59576912161))
    return builder.fdiv(x, sigmoid_divisor(builder, builder.fmul(x, cubic)))


@inner
def activate(activation: int, x: int, size: int, curve: int) -> None:
    """x = the activation, an ungated code, of x; float32 [size], a multiple of LANES. `curve` as in `xielu`."""
    if activation == UNGATED_GELU:
        gelu(x, size)
    elif activation == XIELU:
        xielu(x, size, curve)
    else:
        relu2(x, size)


@primitive
def gelu(builder: Any, x: Address, size: Count) -> None:
    """x = gelu(x), as in `gate_gelu`; float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda x: _gelu(builder, x), x, x)


@primitive
def relu2(builder: Any, x: Address, size: Count) -> None:
    """x = max(x, 0)^2 (So et al. 2021); float32 [size], a multiple of LANES."""

    def squared(x: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", x, splat(0.0)), splat(0.0), builder.fmul(x, x))

    map_vectors(builder, size, squared, x, x)


@primitive
def xielu(builder: Any, x: Address, size: Count, curve: Address) -> None:
    """x = xIELU of x (Huang and Schlag 2024); float32 [size], a multiple of LANES.

    `curve` float32 [4]: softplus(p), beta + softplus(n), beta and eps of `recipe.Gated.curve`.
    """
    p, n, beta, eps = (broadcast(builder, load(builder, curve, constant(index), F32)) for index in range(4))

    def curved(x: Any) -> Any:
        least = builder.select(builder.fcmp_ordered("<", x, eps), x, eps)
        raised = builder.fsub(builder.fsub(exponential(builder, least), splat(1.0)), x)
        above, below = builder.fmul(builder.fmul(p, x), x), builder.fmul(n, raised)
        return builder.fadd(
            builder.select(builder.fcmp_ordered(">", x, splat(0.0)), above, below), builder.fmul(beta, x)
        )

    map_vectors(builder, size, curved, x, x)
