"""The gates of MLPs between their products, by activation."""

from typing import Any

from specchat.engine.cpu.rowwise import exponential, sigmoid_divisor
from specchat.engine.cpu.simd import Address, Count, fma, inner, map_vectors, primitive, splat
from specchat.engine.recipe import Activation

SILU, GELU, CLAMPED = range(3)
CODES: dict[Activation, int] = {"silu": SILU, "gelu_tanh": GELU, "clamped_swiglu": CLAMPED}


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
    map_vectors(builder, size, lambda x, up: _gated(builder, x, x, up), gate, gate, up)


@primitive
def gate_gelu(builder: Any, gate: Address, up: Address, size: Count) -> None:
    """gate = gelu(gate) * up, by tanh (Hendrycks and Gimpel 2016); float32 [size], a multiple of LANES."""

    def gelu(x: Any, up: Any) -> Any:
        # (1 + tanh(u)) / 2 is the sigmoid of 2u; u = sqrt(2 / pi) (x + 0.044715 x^3).
        cubic = fma(builder, builder.fmul(x, x), splat(0.0713548162726), splat(1.59576912161))
        return _gated(builder, x, builder.fmul(x, cubic), up)

    map_vectors(builder, size, gelu, gate, gate, up)


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


def _gated(builder: Any, x: Any, argument: Any, up: Any) -> Any:
    """x * sigmoid(argument) * up."""
    return builder.fmul(builder.fdiv(x, sigmoid_divisor(builder, argument)), up)
