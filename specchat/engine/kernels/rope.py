"""After the query, key and value product: head norms, rotary embedding, and the write into the cache."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.kv_entries import HeadBlocks, KvEntries, Scales, blocks_of, put_int8
from specchat.engine.kernels.partial_sums import PartialSums, constant, partial_sums, summed

_CHUNK = tl.constexpr(16)
"""Heads whose squares are added at a time if all heads share a norm."""

NormOf = tuple[Tensor, float]
"""Weight, of any float dtype, and eps of an RMS norm: [D] of each head, or [heads * D] of all heads together."""


class HeadNorm(NamedTuple):
    """A norm of each head, or of all `together`, which stand `step` times the columns of a head apart."""

    weight: Tensor
    eps: float
    together: tl.constexpr
    step: tl.constexpr


class HeadNorms(NamedTuple):
    """Norms of queries, keys and values."""

    query: HeadNorm | None
    key: HeadNorm | None
    of_value: HeadNorm | None


class RopeNorms(NamedTuple):
    """Norms of queries and keys, of each head or of all together, and of each value head.

    They come before the rotation; `late` ones of single heads after it, which keeps lengths: no `cos` has a factor.
    """

    query: NormOf | None = None
    key: NormOf | None = None
    of_value: NormOf | None = None
    late: bool = False


class RopeRows(NamedTuple):
    """Rows of a pass.

    Attributes:
        start: int32 [1], KV entry of the first row.
        offsets: int32 [R]: 0, 1, 2, ... for a chain; less, and below 0 too, for nodes of a tree.
        skip: int32 [1]; non-zero skips the kernel.
        last: int32 [1], the last row whose entry is written; None: all are.
        temper: float32 [capacity], factors on the rotated queries at each position (`model.rope.tempers`).
    """

    rows: int
    start: Tensor
    offsets: Tensor
    skip: Tensor | None = None
    last: Tensor | None = None
    temper: Tensor | None = None


class Turns(NamedTuple):
    """Cosine and sine of the pairs of a head that turn, float32 [positions, pairs], of `width` values in all."""

    cos: Tensor
    sin: Tensor
    width: int

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor, pairs: int) -> "Turns":
        """The same as tables of `model.rope`, of which the first `pairs` turn, in half of the memory or less."""
        width = cos.shape[1]
        return cls(cos[:, :pairs].contiguous(), sin[:, width // 2 :][:, :pairs].contiguous(), width)

    def on(self, device: torch.device) -> "Turns":
        """The same on a device."""
        return Turns(self.cos.to(device), self.sin.to(device), self.width)


class Rotation(NamedTuple):
    """Tables of `rope_and_write`, and where the rows stand."""

    cos: Tensor
    sin: Tensor
    temper: Tensor | None
    start: Tensor
    offsets: Tensor
    skip: Tensor | None
    last: Tensor | None


class Outputs(NamedTuple):
    """Queries and KV entries, written; entries of a `ring` of fewer than `capacity` positions go round.

    `scales` are those of an int8 cache, None for another.
    """

    query: Tensor
    keys: Tensor
    entries: Tensor
    scales: Scales | None
    heads: int
    kv_heads: int
    capacity: int
    ring: int | None


class RopeShape(NamedTuple):
    """Constants of a program.

    Attributes:
        dim, padded, width: columns of a head, of a tile, and those that are rotated.
        pairs: of them that turn, in the tables.
        step: heads from one query to the next, 2 with gates between them.
        late: norms come after the rotation.
        blocks: of heads in an int8 cache; None for another.
    """

    dim: int
    padded: int
    width: int
    pairs: int
    step: int
    late: bool
    blocks: HeadBlocks | None


@triton.jit(do_not_specialize=["rows", "parts"])  # type: ignore[untyped-decorator]
def _rope_and_write(
    partials: PartialSums,
    norms: HeadNorms,
    rotation: Rotation,
    out: Outputs,
    ahead: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if rotation.skip is not None:  # noqa: SIM102
        if tl.load(rotation.skip) != 0:
            return
    row, head = tl.program_id(0), tl.program_id(1)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            part = (row - rows) * tl.num_programs(1) + head
            if part < parts:
                fetch(ahead, part)
            return
    d = tl.arange(0, shape.padded)
    inside = d < shape.dim
    heads, kv_heads = out.heads, out.kv_heads
    # Gates between the queries are left to attention.
    place_in_row = tl.where(head < heads, head * shape.step, head + heads * (shape.step - 1))
    first = partials.first + row * partials.row + place_in_row * shape.dim
    x = summed(first + d, inside, partials)
    first_slot = tl.load(rotation.start)
    slot = first_slot + row
    # Rows that pad a step to its bucket may lie beyond the end of the cache.
    slot_fits = slot < out.capacity
    if rotation.last is not None:
        # Others would go round a ring, to entries that are still seen.
        slot_fits = slot_fits & (row <= tl.load(rotation.last))
    written = inside & slot_fits
    held = out.capacity
    if out.ring is not None:
        held = out.ring
        slot = slot % out.ring
    if head >= heads + kv_heads:
        if norms.of_value is not None:
            scale = tl.rsqrt(tl.sum(x * x, 0) / shape.dim + norms.of_value.eps)
            x = x * scale * tl.load(norms.of_value.weight + d, mask=inside, other=0.0).to(tl.float32)
        entry = (head - heads - kv_heads).to(tl.int64) * held + slot
        if out.scales is not None:
            put_int8(x, out.entries, out.scales.of_values, entry, slot_fits, shape)
        else:
            tl.store(out.entries + entry * shape.dim + d, x, mask=written)
    else:
        turned = d < shape.width
        opposite = tl.where(turned, (d + shape.width // 2) % shape.width, d)
        swapped = summed(first + opposite, inside, partials)
        if head < heads:
            if norms.query is not None:
                x, swapped = _normed(x, swapped, first, head, heads, norms.query, partials, shape)
        else:
            if norms.key is not None:
                x, swapped = _normed(x, swapped, first, head - heads, kv_heads, norms.key, partials, shape)
        angle = first_slot + tl.load(rotation.offsets + row)
        first_half = d < shape.width // 2
        pair = tl.where(first_half, d, d - shape.width // 2)
        known = turned & (pair < shape.pairs) & (angle < out.capacity)
        # Values that are not turned are multiplied by 1, and 0 is added.
        y = x * tl.load(rotation.cos + angle * shape.pairs + pair, mask=known, other=1.0)
        swapped = tl.where(first_half, -swapped, swapped)
        y += swapped * tl.load(rotation.sin + angle * shape.pairs + pair, mask=known, other=0.0)
        if head < heads:
            if rotation.temper is not None:
                y = y * tl.load(rotation.temper + angle, mask=angle < out.capacity, other=0.0)
            tl.store(out.query + (row * heads + head) * shape.dim + d, y, mask=inside)
        else:
            entry = (head - heads).to(tl.int64) * held + slot
            if out.scales is not None:
                put_int8(y, out.keys, out.scales.of_keys, entry, slot_fits, shape)
            else:
                tl.store(out.keys + entry * shape.dim + d, y, mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def _normed(
    x: tl.tensor,
    swapped: tl.tensor,
    first: tl.tensor,
    index: tl.tensor,
    count: tl.tensor,
    norm: HeadNorm,
    partials: PartialSums,
    shape: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Return the norm of head x, number `index` of `count`, and of the values that the rotation adds to its own."""
    d = tl.arange(0, shape.padded)
    inside = d < shape.dim
    if norm.together:
        squares = tl.zeros_like(x)
        for chunk in range(0, count, _CHUNK):
            other = chunk + tl.arange(0, _CHUNK)
            theirs = first + ((other - index) * (norm.step * shape.dim))[:, None]
            y = summed(theirs + d[None, :], (other < count)[:, None] & inside[None, :], partials)
            squares += tl.sum(y * y, 0)
        scale = tl.rsqrt(tl.sum(squares, 0) / (count * shape.dim) + norm.eps)
    else:
        scale = tl.rsqrt(tl.sum(x * x, 0) / shape.dim + norm.eps)
    weight = norm.weight + (index * shape.dim if norm.together else 0)
    opposite = d
    if not shape.late:
        # The rotation keeps lengths, so that after it a norm differs by the places of its weights alone.
        opposite = tl.where(d < shape.width, (d + shape.width // 2) % shape.width, d)
    x = x * scale * tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    return x, swapped * scale * tl.load(weight + opposite, mask=inside, other=0.0).to(tl.float32)


def rope_and_write(
    partials: Tensor,
    norms: RopeNorms,
    turns: Turns,
    at: RopeRows,
    query: Tensor,
    entries: KvEntries,
    gated: bool = False,
    ahead: Ahead | None = None,
) -> None:
    """Turn the fused product into rotated queries and KV entries (RoPE: Su et al. 2021).

    Row r is at position start + offsets[r] and becomes KV entry start + r; entries beyond the cache are not written.

    Args:
        partials: float32 [splits, R, (heads + 2 * kv) * D], added in index order: queries, keys, values. With queries
            alone no KV entries are written.
        turns: of all positions, for the first values of each head, as many as there are; the others stay.
        query: compute dtype [R, heads, D], written.
        entries: written at KV entries start .. start + rows - 1.
        gated: each query in `partials` is followed by a gate of D values, which is not read.
        ahead: of the product after attention, to be asked for meanwhile.
    """
    (_, held, dim), capacity = entries.keys.shape, len(turns.cos)
    heads = query.shape[1]
    kv_heads = (partials.shape[2] // dim - heads * (1 + gated)) // 2
    step = 1 + gated
    steps = zip(norms[:3], (step, 1, 1), strict=True)
    of_heads = [norm and HeadNorm(*norm, constant(norm[0].shape[0] != dim), constant(apart)) for norm, apart in steps]
    together = any(norm is not None and norm.together.value for norm in of_heads)
    programs, parts, blocks = heads + 2 * kv_heads, ahead.parts if ahead else 0, blocks_of(dim, entries.scales)
    ring = None if held == capacity else held
    _rope_and_write[(at.rows + triton.cdiv(parts, programs), programs)](
        partial_sums(partials),
        HeadNorms(*of_heads),
        Rotation(turns.cos, turns.sin, at.temper, at.start, at.offsets, at.skip, at.last),
        Outputs(query, *entries, heads, kv_heads, capacity, ring),
        ahead and ahead.start,
        at.rows,
        parts,
        RopeShape(dim, triton.next_power_of_2(dim), turns.width, turns.cos.shape[1], step, norms.late, blocks),
        num_warps=warps(together),
        enable_fp_fusion=True,
    )


def warps(together: bool) -> int:
    """Warps of a program: one for a head, more if it reads all heads for their norm."""
    return 4 if together else 1
