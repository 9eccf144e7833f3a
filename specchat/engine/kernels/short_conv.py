"""Short convolutions row by row: what each row leaves for later ones goes into the cache as its KV entry."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed
from specchat.engine.kernels.paths import RowPlaces

COLUMNS = 256
"""Channels of one program."""


@triton.jit  # type: ignore[untyped-decorator]
def _given(
    first: tl.tensor, inside: tl.tensor, channels: tl.tensor, partials: PartialSums, like: tl.tensor
) -> tl.tensor:
    """What a row of the pass leaves in the cache, rounded as it is there."""
    before = summed(first, inside, partials)
    z = summed(first + 2 * channels, inside, partials)
    return (before * z).to(like.dtype.element_ty).to(tl.float32)


class ConvEntries(NamedTuple):
    """KV entries of `short_conv`, each half the channels; those of fewer than `capacity` positions are a ring."""

    keys: Tensor
    second: Tensor
    half: int
    capacity: int
    held: int


@triton.jit  # type: ignore[untyped-decorator]
def _short_conv(
    partials: PartialSums,
    weights: tl.tensor,
    start: tl.tensor,
    at: RowPlaces,
    cache: ConvEntries,
    out: tl.tensor,
    TAPS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    if at.skip is not None:  # noqa: SIM102
        if tl.load(at.skip) != 0:
            return
    row = tl.program_id(0)
    part = tl.program_id(2)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    half, held = cache.half, cache.held
    inside = column < half
    channel = part * half + column
    entries = cache.keys
    if part == 1:
        entries = cache.second
    first = tl.load(start)
    taps = weights + channel * TAPS
    channels = 2 * half
    new = _given(partials.first + row * partials.row + channel, inside, channels, partials, entries)
    # Rows that pad a step to its bucket may lie beyond the end of the cache.
    written = inside & (first + row < cache.capacity)
    if at.last is not None:
        written = written & (row <= tl.load(at.last))
    tl.store(entries + (first + row) % held * half + column, new, mask=written)
    x = new * tl.load(taps + TAPS - 1, mask=inside, other=0.0)
    text = first
    if at.tree is not None:
        text = tl.load(at.length)
        bit = tl.arange(0, 64)
        member = (tl.load(at.tree + row) >> bit.to(tl.int64)) & 1
    # Of the row, then of its ancestors: the node, or how far before the first node.
    node = first + row - text
    for back in tl.static_range(1, TAPS):
        if at.tree is None:
            node = node - 1
        else:
            above = tl.max(tl.where((member != 0) & (bit < node), bit, -1), 0)
            node = tl.where(above >= 0, above, tl.minimum(node, 0) - 1)
        position = text + node
        of_pass = position >= first
        of_row = partials.first + (position - first) * partials.row + channel
        now = _given(of_row, inside & of_pass, channels, partials, entries)
        there = inside & (position >= 0) & (position < first)
        before = tl.load(entries + position % held * half + column, mask=there, other=0.0).to(tl.float32)
        x += tl.where(of_pass, now, before) * tl.load(taps + TAPS - 1 - back, mask=inside, other=0.0)
    x = x * summed(partials.first + row * partials.row + channels + channel, inside, partials)
    tl.store(out + row * channels + channel, x.to(out.dtype.element_ty), mask=inside)


def short_conv(
    partials: Tensor,
    weights: Tensor,
    start: Tensor,
    at: RowPlaces,
    entries: KvEntries,
    out: Tensor,
    rows: int,
    capacity: int,
) -> None:
    """Compute C * convolution(B * z) of each row (`recipe.ShortConv`), and write B * z as its KV entry.

    Row r stands at entry start + r. In a chain it follows the entries before; in a tree it follows the entries
    length + j where bit j of tree[r] is set, and the text before those.

    Args:
        partials: float32 [splits, R, 3 * channels], of B, C and z, added in index order.
        weights: float32 [channels, 1, taps], the last tap of the token itself.
        start: int32 [1].
        at: the rows, of which `last` is the last one whose entry is written.
        entries: [1, held, channels / 2], the first channels as keys and the others as values.
        out: compute dtype [R, channels], written.
        capacity: positions of the cache; entries beyond are not written.
    """
    _, held, half = entries.keys.shape
    _short_conv[(rows, triton.cdiv(half, COLUMNS), 2)](
        partial_sums(partials), weights, start, at,
        ConvEntries(entries.keys, entries.values, half, capacity, held), out,
        TAPS=weights.shape[-1], COLUMNS=COLUMNS, num_warps=2, enable_fp_fusion=True,
    )  # fmt: skip
