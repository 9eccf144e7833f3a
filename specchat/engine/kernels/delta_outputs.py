"""Recurrent layers row by row after their states: norm of heads, z, and the log."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import silu, softplus

from specchat.engine.kernels.delta_state import LogEntries
from specchat.engine.kernels.gpu_shapes import STATE_SLOTS
from specchat.engine.kernels.partial_sums import summed


@triton.jit  # type: ignore[untyped-decorator]
def _finish(
    partials: tl.tensor,
    values: tl.tensor,
    weight: tl.tensor,
    entries: tl.tensor,
    log: tl.tensor,
    start: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    stride_entry: tl.tensor,
    outputs: tl.tensor,
    first: tl.tensor,
    eps: tl.tensor,
    groups: tl.tensor,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    SPLITS: tl.constexpr,
    SLOTS: tl.constexpr,
    SHARE: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    # Not before the states are folded: the entries that those are made of may stand here.
    column = head * SHARE + tl.arange(0, SHARE)
    slot = (tl.load(start) + row) % SLOTS
    entry = tl.load(entries + row * stride_entry + column, mask=column < stride_entry, other=0.0)
    tl.store(log + slot * stride_entry + column, entry, mask=column < stride_entry)
    heads = tl.num_programs(1)
    if groups is not None:
        heads = groups
        weight += head * WIDTH
        if head >= groups:
            return
    d = tl.arange(0, PADDED)
    inside = d < WIDTH
    y = tl.load(values + (row * heads + head) * WIDTH + d, mask=inside, other=0.0)
    z = summed(partials + row * outputs + first + head * WIDTH + d, inside, stride_split, SPLITS)
    if groups is not None:
        y = y * (z * tl.sigmoid(z))
    y = y * tl.rsqrt(tl.sum(y * y, 0) / WIDTH + eps) * tl.load(weight + d, mask=inside, other=0.0)
    if groups is None:
        y = y * (z * tl.sigmoid(z))
    tl.store(out + (row * heads + head) * WIDTH + d, y.to(out.dtype.element_ty), mask=inside)


def finish(
    partials: Tensor,
    values: Tensor,
    norm: tuple[Tensor, float],
    entries: LogEntries,
    log: LogEntries,
    start: Tensor,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    groups: int | None = None,
) -> None:
    """Compute out = norm(values) * silu(z), the norm over each head, and write the rows' entries to the log.

    With `groups` out = norm(values * silu(z)), the norm over each of so many groups of heads.

    Args:
        partials: float32 [splits, R, channels + values], whose last columns are z; with `groups` its first.
        values: float32 [R, value_heads, value_dim], of `step`.
        norm: weight float32 [value_dim], with `groups` [value_heads * value_dim], and eps.
        start: int32 [1], entry of the first row.
        out: compute dtype [R, value_heads * value_dim], written.
        skip: int32 [1]; non-zero skips the kernel.
    """
    value_heads, value_dim = values.shape[1:]
    weight, eps = norm
    width = value_heads // groups * value_dim if groups else value_dim
    padded = triton.next_power_of_2(width)
    _finish[(rows, value_heads)](
        partials,
        values,
        weight,
        entries.whole,
        log.whole,
        start,
        out,
        skip,
        partials.stride(0),
        entries.stride,
        partials.shape[2],
        0 if groups else partials.shape[2] - value_heads * value_dim,
        eps,
        groups,
        WIDTH=width,
        PADDED=padded,
        SPLITS=partials.shape[0],
        SLOTS=STATE_SLOTS,
        SHARE=triton.next_power_of_2(triton.cdiv(entries.stride, value_heads)),
        num_warps=max(warps(entries.stride, value_heads), min(8, padded // 512)),
        enable_fp_fusion=True,
    )


def warps(width: int, value_heads: int) -> int:
    """Warps of a program of `finish`: 16 numbers of an entry a thread."""
    share: int = triton.next_power_of_2(triton.cdiv(width, value_heads))
    return min(4, max(1, share // 512))


def reference_delta(
    mixed: Tensor,
    gates: Tensor,
    weights: Tensor,
    rates: Tensor,
    shifts: Tensor,
    norm: tuple[Tensor, float],
    key_heads: int,
    eps: float,
) -> Tensor:
    """Outputs of the rows of a text from its beginning, in the precision of `mixed`: [rows, value_heads * value_dim].

    Args:
        mixed: [rows, channels + values], queries, keys, values and z; `gates` [rows, 2 * value_heads].
        weights, rates, shifts, norm, eps: as in `convolve` and `finish`.
    """
    (channels, _, taps), heads, rows = weights.shape, len(rates), len(mixed)
    inputs, z = mixed.split((channels, mixed.shape[1] - channels), 1)
    keys = (channels - z.shape[1]) // 2
    inputs = torch.cat((inputs.new_zeros(taps - 1, channels), inputs))
    seen = torch.stack([inputs[tap : tap + rows] * weights[:, 0, tap].to(mixed) for tap in range(taps)])
    parts = silu(seen.sum(0)).split((keys, keys, z.shape[1]), 1)
    counts = key_heads, key_heads, heads
    query, key, value = (part.unflatten(1, (count, -1)) for part, count in zip(parts, counts, strict=True))
    query, key = (
        (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + eps)).repeat_interleave(heads // key_heads, 1)
        for part in (query, key)
    )
    write, forget = gates.chunk(2, 1)
    decay = torch.exp(-rates.to(mixed).exp() * softplus(forget + shifts.to(mixed)))
    state, made = mixed.new_zeros(heads, key.shape[2], value.shape[2]), []
    for row in range(rows):
        state = state * decay[row, :, None, None]
        found = (state * key[row, :, :, None]).sum(1)
        update = (value[row] - found) * write[row].sigmoid()[:, None]
        state = state + key[row, :, :, None] * update[:, None]
        made.append((state * query[row, :, :, None]).sum(1) * key.shape[2] ** -0.5)
    y = torch.stack(made)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + norm[1]) * norm[0].to(mixed)
    return y.flatten(1) * silu(z)
