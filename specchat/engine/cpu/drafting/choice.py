"""Choice of a token from a row of scores, the token's probability, and masks of tokens that are not allowed.

`decoding/noise.py` computes noise for every token; this computes it only for tokens that can still be chosen.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from specchat.engine.cpu.primitives.activations import exponential
from specchat.engine.cpu.primitives.atomics import address
from specchat.engine.cpu.primitives.simd import (
    F32,
    I32,
    VECTOR,
    Address,
    Count,
    Number,
    broadcast,
    constant,
    each_vector,
    inner,
    load,
    primitive,
    python_callable,
    reduce_lanes,
    splat,
    typed_primitive,
)
from specchat.engine.kernels.streams import FIRST, GOLDEN, SECOND, TOKEN
from specchat.engine.memory.vectors import LANES

F64, I16 = ir.DoubleType(), ir.IntType(LANES)
MOST_NOISE = 36.75
"""Upper bound of a token's noise: -log(-log(1 - 2**-53))."""


@inner
def _mix(state: np.uint64) -> np.uint64:
    """SplitMix64's output function of a state."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(SECOND)
    return state ^ (state >> np.uint64(31))


@inner
def _below(key: np.uint64, token: int) -> float:
    """Return 1 - u for a token whose noise is -log(-log(u)): an odd multiple of 2**-53."""
    bits = _mix((np.uint64(token) + np.uint64(1)) * np.uint64(GOLDEN) + key)
    return (float(np.int64(bits >> np.uint64(12))) + 0.5) * 2.0**-52


@typed_primitive
def _any_above(typing: Any, scores: Any, first: Any, bound: Any) -> Any:
    """Return True if one of LANES scores is above the bound, which is rounded to their type."""
    kind = {types.float32: F32, types.float64: F64}[scores.dtype]

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(kind, LANES)
        place = builder.bitcast(builder.gep(made.data, [arguments[1]]), vector.as_pointer())
        rounded = context.cast(builder, arguments[2], types.float64, scores.dtype)
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), rounded, ir.Constant(I32, 0))
        bounds = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))
        above = builder.fcmp_ordered(">", builder.load(place, align=kind_width), bounds)
        return builder.icmp_unsigned("!=", builder.bitcast(above, I16), ir.Constant(I16, 0))

    kind_width = scores.dtype.bitwidth // 8
    return types.boolean(scores, types.int64, types.float64), code


@python_callable(["i8(f4[::1], u8, i8, i8)", "i8(f8[::1], u8, i8, i8)"])
def draw(scores: Any, seed: int, position: int, stream: int) -> int:
    """argmax of scores + Gumbel noise of (seed, position, stream); -1 if all scores are -inf or NaN.

    Logarithms are taken only if the noise can lift a token to the best one so far: noise above d has probability e**-d
    at most, and e**d is above the first terms of its series.
    """
    top, best, size = -np.inf, -1, len(scores)
    for first in range(0, size, LANES):
        last = min(first + LANES, size)
        if last < first + LANES or _any_above(scores, first, top):
            for token in range(first, last):
                if scores[token] > top:
                    top, best = float(scores[token]), token
    if best < 0:
        return -1
    key = _mix(np.uint64(seed) + np.uint64(GOLDEN))
    key = _mix(key + np.uint64(position) * np.uint64(GOLDEN) + np.uint64(1))
    key = _mix(key + np.uint64(stream) * np.uint64(GOLDEN) + np.uint64(2))
    most = top - math.log(-math.log(1.0 - _below(key, best)))
    for first in range(0, size, LANES):
        last = min(first + LANES, size)
        if last == first + LANES and not _any_above(scores, first, most - MOST_NOISE):
            continue
        for token in range(first, last):
            score = float(scores[token])
            less = most - score
            if less < MOST_NOISE:
                below = _below(key, token)
                if less > 0.0 and below * (1.0 + less * (1.0 + less * (0.5 + less / 6.0))) > 1.0:
                    continue
                noisy = score - math.log(-math.log(1.0 - below))
                if noisy > most:
                    most, best = noisy, token
    return best


_draw: Any = draw


@python_callable("void(f4[:,:], f4, u8, i8[::1], f4[::1], i8[::1])")
def draw_each(logits: Any, temperature: np.float32, seed: np.uint64, positions: Any, scores: Any, tokens: Any) -> None:
    """Put `draw` of each row of logits / temperature into `tokens`; `scores` is scratch for a row."""
    for row in range(len(positions)):
        for token in range(len(scores)):
            scores[token] = logits[row, token] / temperature
        tokens[row] = _draw(scores, seed, positions[row], TOKEN)


@primitive
def _weights(builder: Any, x: Address, vectors: Count, peak: Number) -> Number:
    """Sum of e**(x - peak) over `vectors` vectors."""
    slot, less = cgutils.alloca_once(builder, VECTOR), broadcast(builder, peak)
    builder.store(splat(0.0), slot)

    def one(at: Any) -> None:
        power = exponential(builder, builder.fsub(load(builder, x, at), less))
        builder.store(builder.fadd(builder.load(slot), power), slot)

    each_vector(builder, builder.mul(vectors, constant(LANES)), one)
    return reduce_lanes(builder, builder.load(slot), builder.fadd)


@python_callable("f8(f4[::1], i8)")
def probability(scores: Any, token: int) -> float:
    """softmax(scores)[token], within 1e-5."""
    vectors = len(scores) // LANES
    total = float(_weights(address(scores), vectors, scores[token]))
    for other in range(vectors * LANES, len(scores)):
        total += math.exp(scores[other] - scores[token])
    return 1.0 / total


@python_callable("b1(f4[::1], u4[::1])")
def mask(scores: Any, allowed: Any) -> bool:
    """Set scores of tokens that are not allowed to -inf; return True if a finite one is left.

    `allowed` has a bit for each token, 32 a word, the lowest first.
    """
    size, found = len(scores), 0
    for word in range(len(allowed)):
        bits, first = np.int64(allowed[word]), 32 * word
        if bits != 0xFFFFFFFF:
            for token in range(first, min(first + 32, size)):
                scores[token] = scores[token] if (bits >> (token - first)) & 1 else -np.inf
    while found < size and not scores[found] > -np.inf:
        found += 1
    return found < size
