"""After the query, key and value product: head norms, rotary embedding, and the write into the cache."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.partial_sums import summed

CHUNK = 16
"""Heads whose squares are added at a time if all heads share a norm."""

NormOf = tuple[Tensor, float]
"""Weight, of any float dtype, and eps of an RMS norm: [D] of each head, or [heads * D] of all heads together."""


@triton.jit(do_not_specialize=["rows", "parts"])  # type: ignore[untyped-decorator]
def _rope_and_write(
    partials: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    value_norm: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    temper: tl.tensor,
    start: tl.tensor,
    offsets: tl.tensor,
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    skip: tl.tensor,
    ahead: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    stride_split: tl.tensor,
    stride_row: tl.tensor,
    heads: tl.tensor,
    kv_heads: tl.tensor,
    capacity: tl.tensor,
    ring: tl.tensor,
    query_eps: tl.tensor,
    key_eps: tl.tensor,
    value_eps: tl.tensor,
    SPLITS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    WIDTH: tl.constexpr,
    STEP: tl.constexpr,
    ALL_QUERIES: tl.constexpr,
    ALL_KEYS: tl.constexpr,
    LATE: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    head = tl.program_id(1)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            part = (row - rows) * tl.num_programs(1) + head
            if part < parts:
                fetch(ahead, part)
            return
    d = tl.arange(0, PADDED)
    inside = d < DIM
    # Gates between the queries are left to attention.
    place_in_row = tl.where(head < heads, head * STEP, head + heads * (STEP - 1))
    first = partials + row * stride_row + place_in_row * DIM
    x = summed(first + d, inside, stride_split, SPLITS)
    first_slot = tl.load(start)
    slot = first_slot + row
    # Rows that pad a step to its bucket may lie beyond the end of the cache.
    written = inside & (slot < capacity)
    held = capacity
    if ring is not None:
        held = ring
        slot = slot % ring
    if head >= heads + kv_heads:
        if value_norm is not None:
            scale = tl.rsqrt(tl.sum(x * x, 0) / DIM + value_eps)
            x = x * scale * tl.load(value_norm + d, mask=inside, other=0.0).to(tl.float32)
        place = values + ((head - heads - kv_heads).to(tl.int64) * held + slot) * DIM + d
        tl.store(place, x.to(values.dtype.element_ty), mask=written)
    else:
        turned = d < WIDTH
        opposite = tl.where(turned, (d + WIDTH // 2) % WIDTH, d)
        swapped = summed(first + opposite, inside, stride_split, SPLITS)
        # The rotation keeps lengths, so that after it a norm differs by the places of its weights alone.
        of_swapped = d if LATE else opposite
        if head < heads:
            if query_norm is not None:
                scale = _scale(
                    x, first, head, heads, query_eps, stride_split, SPLITS, DIM, PADDED, STEP, ALL_QUERIES, CHUNK
                )
                norm = query_norm + (head * DIM if ALL_QUERIES else 0)
                x = x * scale * tl.load(norm + d, mask=inside, other=0.0).to(tl.float32)
                swapped = swapped * scale * tl.load(norm + of_swapped, mask=inside, other=0.0).to(tl.float32)
        else:
            if key_norm is not None:
                own = head - heads
                scale = _scale(x, first, own, kv_heads, key_eps, stride_split, SPLITS, DIM, PADDED, 1, ALL_KEYS, CHUNK)
                norm = key_norm + (own * DIM if ALL_KEYS else 0)
                x = x * scale * tl.load(norm + d, mask=inside, other=0.0).to(tl.float32)
                swapped = swapped * scale * tl.load(norm + of_swapped, mask=inside, other=0.0).to(tl.float32)
        angle = first_slot + tl.load(offsets + row)
        known = turned & (angle < capacity)
        # Values that are not turned are multiplied by 1, and 0 is added.
        y = x * tl.load(cos + angle * WIDTH + d, mask=known, other=1.0)
        y += swapped * tl.load(sin + angle * WIDTH + d, mask=known, other=0.0)
        if head < heads:
            if temper is not None:
                y = y * tl.load(temper + angle, mask=angle < capacity, other=0.0)
            tl.store(query + (row * heads + head) * DIM + d, y.to(query.dtype.element_ty), mask=inside)
        else:
            place = keys + ((head - heads).to(tl.int64) * held + slot) * DIM + d
            tl.store(place, y.to(keys.dtype.element_ty), mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def _scale(
    x: tl.tensor,
    first: tl.tensor,
    own: tl.tensor,
    count: tl.tensor,
    eps: tl.tensor,
    stride_split: tl.tensor,
    SPLITS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    STEP: tl.constexpr,
    TOGETHER: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """The factor of a norm before its weight, of one head x or of all `count` heads, of which it is number `own`.

    The heads stand STEP times DIM apart.
    """
    if TOGETHER:
        d = tl.arange(0, PADDED)
        squares = tl.zeros((PADDED,), tl.float32)
        for chunk in range(0, count, CHUNK):
            other = chunk + tl.arange(0, CHUNK)
            theirs = first + ((other - own) * (STEP * DIM))[:, None]
            there = (other < count)[:, None] & (d < DIM)[None, :]
            y = summed(theirs + d[None, :], there, stride_split, SPLITS)
            squares += tl.sum(y * y, 0)
        scale = tl.rsqrt(tl.sum(squares, 0) / (count * DIM) + eps)
    else:
        scale = tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)
    return scale


def rope_and_write(
    partials: Tensor,
    query_norm: NormOf | None,
    key_norm: NormOf | None,
    cos: Tensor,
    sin: Tensor,
    start: Tensor,
    offsets: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: int,
    skip: Tensor | None,
    value_norm: NormOf | None = None,
    temper: Tensor | None = None,
    gated: bool = False,
    ahead: Ahead | None = None,
    late_norms: bool = False,
) -> None:
    """Turn the fused product into rotated queries and KV entries (RoPE: Su et al. 2021).

    Row r is at position start + offsets[r] and becomes KV entry start + r; entries beyond the cache are not written.

    Args:
        partials: float32 [splits, R, (heads + 2 * kv) * D], added in index order: queries, keys, values. With queries
            alone no KV entries are written.
        query_norm, key_norm: before the rotation, of each head or of all together.
        cos, sin: float32 [capacity, W] from `model.rope.tables`: out = x * cos + roll(x, W / 2) * sin for the first W
            values of each head, W at most D; the others stay.
        start: int32 [1], KV entry of the first row.
        offsets: int32 [R]: 0, 1, 2, ... for a chain; less, and below 0 too, for nodes of a tree.
        query: compute dtype [R, heads, D], written.
        keys, values: compute dtype [kv, capacity, D], written at KV entries start .. start + rows - 1. With fewer
            entries than positions they are a ring: KV entry p is modulo their number.
        skip: int32 [1]; non-zero skips the kernel.
        value_norm: of each value head.
        temper: float32 [capacity], factors on the rotated queries at each position (`model.rope.tempers`).
        gated: each query in `partials` is followed by a gate of D values, which is not read.
        ahead: of the product after attention, to be asked for meanwhile.
        late_norms: norms of single heads come after the rotation, which keeps lengths: no `cos` has a factor.
    """
    (_, held, dim), capacity = keys.shape, len(cos)
    heads = query.shape[1]
    kv_heads = (partials.shape[2] // dim - heads * (1 + gated)) // 2
    norms = query_norm, key_norm, value_norm
    all_queries, all_keys = (norm is not None and norm[0].shape[0] != dim for norm in (query_norm, key_norm))
    programs, parts = heads + 2 * kv_heads, ahead.parts if ahead else 0
    _rope_and_write[(rows + triton.cdiv(parts, programs), programs)](
        partials,
        *(norm and norm[0] for norm in norms),
        cos,
        sin,
        temper,
        start,
        offsets,
        query,
        keys,
        values,
        skip,
        ahead and ahead.start,
        rows,
        parts,
        partials.stride(0),
        partials.stride(1),
        heads,
        kv_heads,
        capacity,
        None if held == capacity else held,
        *(norm and norm[1] for norm in norms),
        SPLITS=partials.shape[0],
        DIM=dim,
        PADDED=triton.next_power_of_2(dim),
        WIDTH=cos.shape[1],
        STEP=1 + gated,
        ALL_QUERIES=all_queries,
        ALL_KEYS=all_keys,
        LATE=late_norms,
        CHUNK=CHUNK,
        num_warps=warps(all_queries or all_keys),
        enable_fp_fusion=True,
    )


def warps(together: bool) -> int:
    """Warps of a program: one for a head, more if it reads all heads for their norm."""
    return 4 if together else 1


def reference_rope(
    partials: Tensor,
    query_norm: NormOf | None,
    key_norm: NormOf | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    value_norm: NormOf | None = None,
    temper: Tensor | None = None,
    gated: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries [rows, heads, D] and keys [rows, kv, D], and values [rows, kv, D], in float64."""
    queries = heads * (1 + gated)
    x = partials.double().sum(0).unflatten(-1, (queries + 2 * kv_heads, -1))
    query, key, value = x.split((queries, kv_heads, kv_heads), 1)
    query, key, value = (
        y if norm is None else _reference_norm(y, *norm)
        for y, norm in ((query[:, :: 1 + gated], query_norm), (key, key_norm), (value, value_norm))
    )
    c, s = cos[positions.long(), None].double(), sin[positions.long(), None].double()
    width = cos.shape[1]
    rotated_query, rotated_key = (
        torch.cat((y[..., :width] * c + y[..., :width].roll(width // 2, -1) * s, y[..., width:]), -1)
        for y in (query, key)
    )
    if temper is not None:
        rotated_query = rotated_query * temper[positions.long(), None, None].double()
    return rotated_query, rotated_key, value


def _reference_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The norm of heads [rows, heads, D], of each or of all together."""
    dim = x.shape[-1]
    over = -1 if len(weight) == dim else (-2, -1)
    return x * torch.rsqrt(x.square().mean(over, keepdim=True) + eps) * weight.double().view(-1, dim)
