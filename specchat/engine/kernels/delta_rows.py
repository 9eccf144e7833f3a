"""Recurrent layers row by row before their states: the convolution, queries and keys of length 1, and the gates.

Equation 10 of Yang et al. 2025, with the names of `recipe.Delta`, or Mamba 2 as in `recipe.Selective`.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.delta_state import LoggedRows
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed

_SLOTS = tl.constexpr(STATE_SLOTS)


class RowText(NamedTuple):
    """Positions of the rows of a pass: row r stands at entry start + r.

    Attributes:
        start, length: int32 [1].
        paths: int64 [R], 64 at most: row r follows the entries length + j where bit j is set, its own included.
        skip: int32 [1]; non-zero skips the kernels.
    """

    start: Tensor
    length: Tensor
    paths: Tensor
    skip: Tensor | None = None


class GateWeights(NamedTuple):
    """Weights of the convolution, and those of gates.

    Attributes:
        taps: float32 [channels, 1, taps], the last tap of the token itself.
        biases: float32 [channels], added by the convolution.
        rates, shifts: float32 [value_heads].
    """

    taps: Tensor
    biases: Tensor | None
    rates: Tensor
    shifts: Tensor


class StateInputs(NamedTuple):
    """Inputs of the states by row, float32.

    Attributes:
        query: [R, key_heads, key_dim], scaled by key_dim ** -0.5 if keys have length 1.
        values: [R, value_heads, value_dim].
        writes: [R, value_heads]: sigmoid(b), or softplus(a + shift).
    """

    query: Tensor
    values: Tensor
    writes: Tensor


class RowOutputs(NamedTuple):
    """Entries that `convolve` reads and writes, and its other outputs."""

    logged: Tensor
    inputs: Tensor
    keys: Tensor
    decays: Tensor
    query: Tensor
    of_value: Tensor
    writes: Tensor
    stride_entry: int


class RowShape(NamedTuple):
    """Constants of a program: heads, their columns, taps of the convolution, columns where what it reads begins."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int
    first: int
    query: int
    key: int
    of_value: int

    @property
    def padded(self) -> int:
        """Columns of a program."""
        columns: int = triton.next_power_of_2(max(self.key_dim, self.value_dim))
        return columns


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(
    partials: PartialSums,
    gates: PartialSums,
    weights: GateWeights,
    at: RowText,
    out: RowOutputs,
    eps: tl.tensor,
    scale: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    KEY_HEADS: tl.constexpr = shape.key_heads
    VALUE_HEADS: tl.constexpr = shape.value_heads
    KEY_DIM: tl.constexpr = shape.key_dim
    VALUE_DIM: tl.constexpr = shape.value_dim
    TAPS: tl.constexpr = shape.taps
    PADDED: tl.constexpr = shape.padded
    row = tl.program_id(0)
    head = tl.program_id(1)
    of = head - 2 * KEY_HEADS
    d = tl.arange(0, PADDED)
    inside = d < tl.where(of < 0, KEY_DIM, VALUE_DIM)
    of_key = tl.where(head < KEY_HEADS, shape.query + head * KEY_DIM, shape.key + (head - KEY_HEADS) * KEY_DIM)
    channel = tl.where(of < 0, of_key, shape.of_value + of * VALUE_DIM) + d
    begin = partials.first + shape.first
    first = tl.load(at.start)
    text = tl.load(at.length)
    entry = row * out.stride_entry
    taps = weights.taps + channel * TAPS
    new = summed(begin + row * partials.row + channel, inside, partials)
    tl.store(out.inputs + entry + channel, new, mask=inside)
    x = new * tl.load(taps + TAPS - 1, mask=inside, other=0.0)
    bit = tl.arange(0, 64)
    member = (tl.load(at.paths + row) >> bit.to(tl.int64)) & 1
    # Of the row, then of its ancestors: the node, or how far before the first node.
    node = first + row - text
    for back in tl.static_range(1, TAPS):
        above = tl.max(tl.where((member != 0) & (bit < node), bit, -1), 0)
        node = tl.where(above >= 0, above, tl.minimum(node, 0) - 1)
        position = text + node
        of_pass = position >= first
        now = summed(begin + (position - first) * partials.row + channel, inside & of_pass, partials)
        there = inside & (position >= 0) & (position < first)
        before = tl.load(out.logged + position % _SLOTS * out.stride_entry + channel, mask=there, other=0.0)
        x += tl.where(of_pass, now, before) * tl.load(taps + TAPS - 1 - back, mask=inside, other=0.0)
    if weights.biases is not None:
        x += tl.load(weights.biases + channel, mask=inside, other=0.0)
    x = x * tl.sigmoid(x)
    if of >= 0:
        tl.store(out.of_value + (row * VALUE_HEADS + of) * VALUE_DIM + d, x, mask=inside)
        gate = gates.first + row * gates.row + of
        write = tl.load(gate)
        if eps is None:
            for split in tl.static_range(1, gates.splits):
                write += tl.load(gate + split * gates.split)
            write = _softplus(write + tl.load(weights.shifts + of))
            rate = tl.exp(tl.load(weights.rates + of)) * write
            tl.store(out.writes + row * VALUE_HEADS + of, write)
        else:
            forget = tl.load(gate + VALUE_HEADS)
            for split in tl.static_range(1, gates.splits):
                write += tl.load(gate + split * gates.split)
                forget += tl.load(gate + split * gates.split + VALUE_HEADS)
            rate = tl.exp(tl.load(weights.rates + of)) * _softplus(forget + tl.load(weights.shifts + of))
            tl.store(out.writes + row * VALUE_HEADS + of, tl.sigmoid(write))
        tl.store(out.decays + entry + of, tl.exp(-rate))
    else:
        if eps is not None:
            x = x * tl.rsqrt(tl.sum(x * x, 0) + eps)
        if head < KEY_HEADS:
            tl.store(out.query + (row * KEY_HEADS + head) * KEY_DIM + d, x * scale, mask=inside)
        else:
            tl.store(out.keys + entry + (head - KEY_HEADS) * KEY_DIM + d, x, mask=inside)


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
    weights: GateWeights,
    at: RowText,
    entries: LoggedRows,
    out: StateInputs,
    rows: int,
    eps: float | None,
) -> None:
    """Compute queries, keys, values and gates of a pass: the convolution of each channel, silu, lengths of 1.

    Args:
        partials: float32 [splits, R, channels + values], of queries, keys, values and z, added in index order; without
            an `eps` of z, values, keys, queries and a.
        gates: float32 [splits, R, 2 * value_heads], of b and a; without an `eps` the last columns of `partials`.
        entries: inputs, keys and decays of the rows are written.
        out: written.
        eps: added to squared lengths; None: those of Mamba 2, of any length.
    """
    (key_heads, key_dim), (value_heads, value_dim) = out.query.shape[1:], out.values.shape[1:]
    keys, of_values, of_rows = key_heads * key_dim, value_heads * value_dim, entries.rows
    begins = (0, 0, keys, 2 * keys) if eps else (of_values, of_values + keys, of_values, 0)
    _convolve[(rows, 2 * key_heads + value_heads)](
        partial_sums(partials),
        partial_sums(gates),
        weights,
        at,
        RowOutputs(entries.log.inputs, of_rows.inputs, of_rows.keys, of_rows.decays, *out, of_rows.stride),
        eps,
        key_dim**-0.5 if eps else 1.0,
        RowShape(key_heads, value_heads, key_dim, value_dim, weights.taps.shape[-1], *begins),
        num_warps=1,
        enable_fp_fusion=True,
    )
