"""Attention of a tile of rows over a block of keys: what both programs of attention repeat along the text."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import SHARING_HEADS
from specchat.engine.kernels.kv_entries import HeadBlocks, Scales, load_entries
from specchat.engine.kernels.workspace import SplitSums

TILE = SHARING_HEADS
"""Packed rows of one program: more rows take more programs, never a larger tile."""


class Operands(NamedTuple):
    """Queries, keys and values of `attend`, and scales of an int8 cache."""

    query: Tensor
    key: Tensor
    value: Tensor
    scales: Scales | None


class ScoreSizes(NamedTuple):
    """Numbers of a launch; `scale` and `cap` of scores are in powers of 2."""

    heads: int
    capacity: int
    stride_split: int
    scale: float
    cap: float | None
    ring: int | None


class AttentionShape(NamedTuple):
    """Constants of a program: query heads of a key-value head, columns of a head, keys of a pass and of a split.

    Of the columns `written` go to the output. `blocks` are those of a head in an int8 cache; None for another.
    """

    group: int
    dim: int
    written: int
    padded: int
    keys: int
    split: int
    blocks: HeadBlocks | None


class Sight(NamedTuple):
    """Sight of the rows of a tile: positions before `seen`, from `since` on, int32 [TILE].

    None sees a position from `end` on, or before `lowest`. Without a window there are no `since` and no `lowest`.
    """

    end: tl.tensor
    seen: tl.tensor
    since: tl.tensor
    lowest: tl.tensor


class KeyBlock(NamedTuple):
    """Positions of some keys, and the entries that hold them."""

    position: tl.tensor
    slot: tl.tensor


@triton.jit  # type: ignore[untyped-decorator]
def of_kv_head(operands: Operands, kv: tl.tensor, sizes: ScoreSizes, shape: tl.constexpr) -> Operands:
    """Return the operands from the entries of a key-value head on."""
    held = sizes.capacity if sizes.ring is None else sizes.ring
    first = kv.to(tl.int64) * held
    scales = operands.scales
    if scales is not None:
        of_scales = first * shape.blocks.of_head
        scales = Scales(scales.of_keys + of_scales, scales.of_values + of_scales)
    of_entries = first * shape.dim
    return Operands(operands.query, operands.key + of_entries, operands.value + of_entries, scales)


@triton.jit  # type: ignore[untyped-decorator]
def load_queries(
    operands: Operands, token: tl.tensor, head: tl.tensor, used: tl.tensor, sizes: ScoreSizes, shape: tl.constexpr
) -> tl.tensor:
    """Return the queries of packed rows, compute dtype [TILE, D]."""
    d = tl.arange(0, shape.padded)
    of_query = (token * sizes.heads + head)[:, None] * shape.dim + d[None, :]
    return tl.load(operands.query + of_query, mask=used[:, None] & (d[None, :] < shape.dim), other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def add_keys(
    sums: SplitSums,
    q: tl.tensor,
    operands: Operands,
    keys: KeyBlock,
    sight: Sight,
    sizes: ScoreSizes,
    window: tl.tensor,
    shape: tl.constexpr,
) -> SplitSums:
    """Return the sums with some more keys."""
    position, slot = keys.position, keys.slot
    k_scales, v_scales = None, None
    if operands.scales is not None:
        k_scales, v_scales = operands.scales.of_keys, operands.scales.of_values
    # Never read what no row sees: 0 * NaN would be NaN.
    there = position < sight.end
    if window is not None:
        there = (position - sight.lowest).to(tl.uint32) < (sight.end - sight.lowest).to(tl.uint32)
    scores = _scores(q, load_entries(operands.key, k_scales, slot, there, q, shape), sizes)
    visible = position[None, :] < sight.seen[:, None]
    if window is not None:
        visible = (position[None, :] - sight.since[:, None]).to(tl.uint32) < window
    scores = tl.where(visible, scores, float("-inf"))
    best, total, fade, p = _weights(sums.best, sums.total, scores)
    v = load_entries(operands.value, v_scales, slot, there, q, shape)
    return SplitSums(best, total, tl.dot(p.to(v.dtype), v, sums.mixed * fade[:, None], input_precision="ieee"))


@triton.jit  # type: ignore[untyped-decorator]
def of_ring(slot: tl.tensor, first: tl.tensor, sizes: ScoreSizes) -> tl.tensor:
    """Return entries of a ring, if the cache is one; `slot` are those of all positions, from `first` on."""
    if sizes.ring is not None:
        # Positions of a split and the nodes of a tree after them go round a ring once at most.
        slot -= first // sizes.ring * sizes.ring
        slot = tl.where(slot < sizes.ring, slot, slot - sizes.ring)
    return slot


@triton.jit  # type: ignore[untyped-decorator]
def _scores(q: tl.tensor, k: tl.tensor, sizes: ScoreSizes) -> tl.tensor:
    """Return the scaled and capped scores of queries [TILE, D] and keys [KEYS, D], in powers of 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * sizes.scale
    if sizes.cap is not None:
        scores = sizes.cap * (2 * tl.sigmoid(2 * scores) - 1)
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def _weights(best: tl.tensor, total: tl.tensor, scores: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return `best` and `total` with more keys, of scores [TILE, KEYS], the factor on older sums, and the weights."""
    new = tl.maximum(best, tl.max(scores, 1))
    # A row without visible keys so far keeps -inf and sums zeros.
    origin = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp2(scores - origin[:, None])
    fade = tl.exp2(best - origin)
    return new, total * fade + tl.sum(p, 1), fade, p
