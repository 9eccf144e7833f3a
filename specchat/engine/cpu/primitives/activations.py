"""Activations of rows between the products: exponentials, sigmoids, and the gates of MLPs and attention."""

from typing import Any

from llvmlite import ir

from specchat.engine.cpu.primitives.simd import (
    F32,
    VECTOR,
    WORDS,
    Address,
    Count,
    Number,
    broadcast,
    constant,
    fma,
    inner,
    load,
    map_vectors,
    primitive,
    splat,
)
from specchat.engine.memory.vectors import LANES
from specchat.engine.recipe import Activation


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


def sigmoid(builder: Any, x: Any) -> Any:
    """1 / (1 + e**-x)."""
    return builder.fdiv(splat(1.0), sigmoid_divisor(builder, x))


@primitive
def sigmoids(builder: Any, x: Address, size: Count) -> None:
    """x = 1 / (1 + e**-x); float32 [size], a multiple of LANES."""
    map_vectors(builder, size, lambda x: sigmoid(builder, x), x, x)


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
