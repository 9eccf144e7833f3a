"""Short convolutions row by row: what each row leaves for later ones goes into the cache as its KV entry."""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.partial_sums import summed

COLUMNS = 256
"""Channels of one program."""


@triton.jit  # type: ignore[untyped-decorator]
def _given(
    first: tl.tensor,
    inside: tl.tensor,
    channels: tl.tensor,
    stride_split: tl.tensor,
    like: tl.tensor,
    SPLITS: tl.constexpr,
) -> tl.tensor:
    """What a row of the pass leaves in the cache, rounded as it is there."""
    before = summed(first, inside, stride_split, SPLITS)
    z = summed(first + 2 * channels, inside, stride_split, SPLITS)
    return (before * z).to(like.dtype.element_ty).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _short_conv(
    partials: tl.tensor,
    weights: tl.tensor,
    start: tl.tensor,
    length: tl.tensor,
    tree: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    out: tl.tensor,
    skip: tl.tensor,
    stride_split: tl.tensor,
    stride_row: tl.tensor,
    half: tl.tensor,
    capacity: tl.tensor,
    held: tl.tensor,
    TAPS: tl.constexpr,
    SPLITS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    part = tl.program_id(2)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < half
    channel = part * half + column
    entries = keys
    if part == 1:
        entries = values
    first = tl.load(start)
    taps = weights + channel * TAPS
    channels = 2 * half
    own = _given(partials + row * stride_row + channel, inside, channels, stride_split, keys, SPLITS)
    # Rows that pad a step to its bucket may lie beyond the end of the cache.
    written = inside & (first + row < capacity)
    tl.store(entries + (first + row) % held * half + column, own.to(keys.dtype.element_ty), mask=written)
    x = own * tl.load(taps + TAPS - 1, mask=inside, other=0.0)
    text = first
    if tree is not None:
        text = tl.load(length)
        bit = tl.arange(0, 64)
        member = (tl.load(tree + row) >> bit.to(tl.int64)) & 1
    # Of the row, then of its ancestors: the node, or how far before the first node.
    at = first + row - text
    for back in tl.static_range(1, TAPS):
        if tree is None:
            at = at - 1
        else:
            above = tl.max(tl.where((member != 0) & (bit < at), bit, -1), 0)
            at = tl.where(above >= 0, above, tl.minimum(at, 0) - 1)
        position = text + at
        of_pass = position >= first
        place = partials + (position - first) * stride_row + channel
        now = _given(place, inside & of_pass, channels, stride_split, keys, SPLITS)
        there = inside & (position >= 0) & (position < first)
        before = tl.load(entries + position % held * half + column, mask=there, other=0.0).to(tl.float32)
        x += tl.where(of_pass, now, before) * tl.load(taps + TAPS - 1 - back, mask=inside, other=0.0)
    x = x * summed(partials + row * stride_row + channels + channel, inside, stride_split, SPLITS)
    tl.store(out + row * channels + channel, x.to(out.dtype.element_ty), mask=inside)


def short_conv(
    partials: Tensor,
    weights: Tensor,
    start: Tensor,
    length: Tensor,
    tree: Tensor | None,
    keys: Tensor,
    values: Tensor,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    capacity: int,
) -> None:
    """Compute C * convolution(B * z) of each row (`recipe.ShortConv`), and write B * z as its KV entry.

    Row r stands at entry start + r. In a chain it follows the entries before; in a tree it follows the entries
    length + j where bit j of tree[r] is set, and the text before those.

    Args:
        partials: float32 [splits, R, 3 * channels], of B, C and z, added in index order.
        weights: float32 [channels, 1, taps], the last tap of the token itself.
        start, length: int32 [1].
        tree: int64 [R] with the row's own bit set; None for a chain.
        keys, values: compute dtype [1, held, channels / 2], the first and the other channels of entries. With fewer
            entries than positions they are a ring: entry p is modulo their number.
        out: compute dtype [R, channels], written.
        skip: int32 [1]; non-zero skips the kernel.
        capacity: positions of the cache; entries beyond are not written.
    """
    _, held, half = keys.shape
    _short_conv[(rows, triton.cdiv(half, COLUMNS), 2)](
        partials, weights, start, length, tree, keys, values, out, skip, partials.stride(0), partials.stride(1), half,
        capacity, held, TAPS=weights.shape[-1], SPLITS=partials.shape[0], COLUMNS=COLUMNS, num_warps=2,
        enable_fp_fusion=True,
    )  # fmt: skip
