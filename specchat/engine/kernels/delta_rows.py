"""Recurrent layers row by row before their states: the convolution, queries and keys of length 1, and the gates.

Equation 10 of Yang et al. 2025, with the names of `recipe.Delta`, or Mamba 2 as in `recipe.Selective`.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.delta_state import LogEntries
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.partial_sums import summed


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(
    partials: tl.tensor,
    gates: tl.tensor,
    weights: tl.tensor,
    biases: tl.tensor,
    rates: tl.tensor,
    shifts: tl.tensor,
    start: tl.tensor,
    length: tl.tensor,
    paths: tl.tensor,
    logged: tl.tensor,
    inputs: tl.tensor,
    keys: tl.tensor,
    decays: tl.tensor,
    query: tl.tensor,
    values: tl.tensor,
    writes: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    stride_gates: tl.tensor,
    stride_gate: tl.tensor,
    stride_entry: tl.tensor,
    outputs: tl.tensor,
    eps: tl.tensor,
    scale: tl.tensor,
    FIRST: tl.constexpr,
    QUERY: tl.constexpr,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    VALUE_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    TAPS: tl.constexpr,
    SPLITS: tl.constexpr,
    GATE_SPLITS: tl.constexpr,
    SLOTS: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    of = head - 2 * KEY_HEADS
    d = tl.arange(0, PADDED)
    inside = d < tl.where(of < 0, KEY_DIM, VALUE_DIM)
    of_key = tl.where(head < KEY_HEADS, QUERY + head * KEY_DIM, KEY + (head - KEY_HEADS) * KEY_DIM)
    channel = tl.where(of < 0, of_key, VALUE + of * VALUE_DIM) + d
    partials += FIRST
    first = tl.load(start)
    text = tl.load(length)
    entry = row * stride_entry
    taps = weights + channel * TAPS
    own = summed(partials + row * outputs + channel, inside, stride_split, SPLITS)
    tl.store(inputs + entry + channel, own, mask=inside)
    x = own * tl.load(taps + TAPS - 1, mask=inside, other=0.0)
    bit = tl.arange(0, 64)
    member = (tl.load(paths + row) >> bit.to(tl.int64)) & 1
    # Of the row, then of its ancestors: the node, or how far before the first node.
    at = first + row - text
    for back in tl.static_range(1, TAPS):
        above = tl.max(tl.where((member != 0) & (bit < at), bit, -1), 0)
        at = tl.where(above >= 0, above, tl.minimum(at, 0) - 1)
        position = text + at
        of_pass = position >= first
        now = summed(partials + (position - first) * outputs + channel, inside & of_pass, stride_split, SPLITS)
        there = inside & (position >= 0) & (position < first)
        before = tl.load(logged + position % SLOTS * stride_entry + channel, mask=there, other=0.0)
        x += tl.where(of_pass, now, before) * tl.load(taps + TAPS - 1 - back, mask=inside, other=0.0)
    if biases is not None:
        x += tl.load(biases + channel, mask=inside, other=0.0)
    x = x * tl.sigmoid(x)
    if of >= 0:
        tl.store(values + (row * VALUE_HEADS + of) * VALUE_DIM + d, x, mask=inside)
        gate = gates + row * stride_gate + of
        write = tl.load(gate)
        if eps is None:
            for split in tl.static_range(1, GATE_SPLITS):
                write += tl.load(gate + split * stride_gates)
            write = _softplus(write + tl.load(shifts + of))
            rate = tl.exp(tl.load(rates + of)) * write
            tl.store(writes + row * VALUE_HEADS + of, write)
        else:
            forget = tl.load(gate + VALUE_HEADS)
            for split in tl.static_range(1, GATE_SPLITS):
                write += tl.load(gate + split * stride_gates)
                forget += tl.load(gate + split * stride_gates + VALUE_HEADS)
            rate = tl.exp(tl.load(rates + of)) * _softplus(forget + tl.load(shifts + of))
            tl.store(writes + row * VALUE_HEADS + of, tl.sigmoid(write))
        tl.store(decays + entry + of, tl.exp(-rate))
    else:
        if eps is not None:
            x = x * tl.rsqrt(tl.sum(x * x, 0) + eps)
        if head < KEY_HEADS:
            tl.store(query + (row * KEY_HEADS + head) * KEY_DIM + d, x * scale, mask=inside)
        else:
            tl.store(keys + entry + (head - KEY_HEADS) * KEY_DIM + d, x, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _softplus(x: tl.tensor) -> tl.tensor:
    """log(1 + e**x) as max(x, 0) + log(1 + y) with y = e**-|x|, and log(1 + y) = 2 artanh(s) with s = y / (2 + y).

    A logarithm of 1 + y would round what a slow decay is made of. The rest of the series is below 2e-8.
    """
    y = tl.exp(-tl.abs(x))
    s = y / (y + 2.0)
    square = s * s
    series = 1.0 / 11.0 + square * (1.0 / 13.0)
    series = 1.0 / 9.0 + square * series
    series = 1.0 / 7.0 + square * series
    series = 1.0 / 5.0 + square * series
    series = 1.0 / 3.0 + square * series
    return tl.maximum(x, 0.0) + 2.0 * s * (1.0 + square * series)


def convolve(
    partials: Tensor,
    gates: Tensor,
    weights: Tensor,
    rates: Tensor,
    shifts: Tensor,
    start: Tensor,
    length: Tensor,
    paths: Tensor,
    log: LogEntries,
    entries: LogEntries,
    query: Tensor,
    values: Tensor,
    writes: Tensor,
    rows: int,
    skip: Tensor | None,
    eps: float | None,
    bias: Tensor | None = None,
) -> None:
    """Compute queries, keys, values and gates of a pass: the convolution of each channel, silu, lengths of 1.

    Row r stands at entry start + r, and follows the entries length + j where bit j of paths[r] is set.

    Args:
        partials: float32 [splits, R, channels + values], of queries, keys, values and z, added in index order; without
            an `eps` of z, values, keys, queries and a.
        gates: float32 [splits, R, 2 * value_heads], of b and a; without an `eps` the last columns of `partials`.
        weights: float32 [channels, 1, taps], the last tap of the token itself.
        rates, shifts: float32 [value_heads].
        start, length: int32 [1].
        paths: int64 [R], 64 at most.
        log: entries of the tokens before the pass.
        entries: of the rows, [R]; inputs, keys and decays are written.
        query: float32 [R, key_heads, key_dim], written, scaled by key_dim ** -0.5 if keys have length 1.
        values: float32 [R, value_heads, value_dim], written.
        writes: float32 [R, value_heads], written: sigmoid(b), or softplus(a + shift).
        skip: int32 [1]; non-zero skips the kernel.
        eps: added to squared lengths; None: those of Mamba 2, of any length.
        bias: float32 [channels], added by the convolution.
    """
    (key_heads, key_dim), (value_heads, value_dim) = query.shape[1:], values.shape[1:]
    keys, of_values = key_heads * key_dim, value_heads * value_dim
    first, query_at, key_at, value_at = (0, 0, keys, 2 * keys) if eps else (of_values, of_values + keys, of_values, 0)
    _convolve[(rows, 2 * key_heads + value_heads)](
        partials,
        gates,
        weights,
        bias,
        rates,
        shifts,
        start,
        length,
        paths,
        log.inputs,
        entries.inputs,
        entries.keys,
        entries.decays,
        query,
        values,
        writes,
        skip,
        partials.stride(0),
        gates.stride(0),
        gates.stride(1),
        entries.stride,
        partials.shape[2],
        eps,
        key_dim**-0.5 if eps else 1.0,
        FIRST=first,
        QUERY=query_at,
        KEY=key_at,
        VALUE=value_at,
        KEY_HEADS=key_heads,
        VALUE_HEADS=value_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        PADDED=triton.next_power_of_2(max(key_dim, value_dim)),
        TAPS=weights.shape[-1],
        SPLITS=partials.shape[0],
        GATE_SPLITS=gates.shape[0],
        SLOTS=STATE_SLOTS,
        num_warps=1,
        enable_fp_fusion=True,
    )
