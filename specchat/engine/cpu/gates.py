"""The gates of MLPs between their products, by activation."""

from collections.abc import Callable
from typing import Any

from specchat.engine.cpu.rowwise import exponential
from specchat.engine.cpu.simd import each_vector, fma, inner, load, primitive, splat, store, void_primitive
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
def gate_silu(typing: Any, gate: Any, up: Any, size: Any) -> Any:
    """gate = silu(gate) * up; float32 [size], a multiple of LANES."""
    return _gate(lambda _, x: x)


@primitive
def gate_gelu(typing: Any, gate: Any, up: Any, size: Any) -> Any:
    """gate = gelu(gate) * up, by tanh (Hendrycks and Gimpel 2016); float32 [size], a multiple of LANES."""

    def twice(builder: Any, x: Any) -> Any:
        # (1 + tanh(u)) / 2 is the sigmoid of 2u; u = sqrt(2 / pi) (x + 0.044715 x^3).
        cubic = fma(builder, builder.fmul(x, x), splat(0.0713548162726), splat(1.59576912161))
        return builder.fmul(x, cubic)

    return _gate(twice)


@primitive
def gate_clamped(typing: Any, gate: Any, up: Any, size: Any) -> Any:
    """gate = g sigmoid(1.702 g) (u + 1) with g = min(gate, 7) and u = up between -7 and 7 (gpt-oss, OpenAI 2025)."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        gate, up, size = arguments

        def bounded(x: Any, least: bool, bound: float) -> Any:
            outside = builder.fcmp_ordered("<" if least else ">", x, splat(bound))
            return builder.select(outside, splat(bound), x)

        def one(at: Any) -> None:
            g, u = bounded(load(builder, gate, at), False, 7.0), load(builder, up, at)
            u = builder.fadd(bounded(bounded(u, False, 7.0), True, -7.0), splat(1.0))
            below = builder.fadd(exponential(builder, builder.fmul(splat(-1.702), g)), splat(1.0))
            store(builder, builder.fmul(builder.fdiv(g, below), u), gate, at)

        each_vector(builder, size, one)

    return void_primitive([], 3, emit)


@primitive
def close_gate(typing: Any, x: Any, gate: Any, out: Any, size: Any) -> Any:
    """out = x * sigmoid(gate); float32 [size], a multiple of LANES. What is written may lie before x."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        x, gate, out, size = arguments

        def one(at: Any) -> None:
            below = builder.fadd(exponential(builder, builder.fsub(splat(0.0), load(builder, gate, at))), splat(1.0))
            store(builder, builder.fdiv(load(builder, x, at), below), out, at)

        each_vector(builder, size, one)

    return void_primitive([], 4, emit)


def _gate(argument: Callable[[Any, Any], Any]) -> Any:
    """Make a gate: gate = gate * sigmoid(argument(gate)) * up."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        gate, up, size = arguments

        def one(at: Any) -> None:
            x = load(builder, gate, at)
            below = builder.fadd(exponential(builder, builder.fsub(splat(0.0), argument(builder, x))), splat(1.0))
            store(builder, builder.fmul(builder.fdiv(x, below), load(builder, up, at)), gate, at)

        each_vector(builder, size, one)

    return void_primitive([], 3, emit)
