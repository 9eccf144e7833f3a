"""The experts of the rows of a pass, and the rows of each expert, in tiles for the products.

A row with one of its experts is a pair. Pairs are sorted by expert, each expert's by row, so that an expert is read
once for all rows of a tile. One program does both: a row's choice is elementwise but for sums in a fixed order.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import PASS_ROWS, expert_tiles, most_tiles
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed


@dataclass(frozen=True)
class Pairs:
    """The pairs of a pass of R rows with `top` of `count` experts each, written by `route`.

    A shared expert is the last one, of every row.

    Attributes:
        shares: float32 [R * top], of the k-th expert of row r at r * top + k.
        places: int32 [R * top], the place of this pair among the sorted ones.
        rows: int32 [R * top], the row of each sorted pair.
        used: int32 [1], number of tiles.
        experts, begins, ends: int32 [tiles], the expert, the first sorted pair and the end of those of each tile.
    """

    count: int
    top: int
    shares: Tensor
    places: Tensor
    rows: Tensor
    used: Tensor
    experts: Tensor
    begins: Tensor
    ends: Tensor


@dataclass(frozen=True)
class Rule:
    """How experts are chosen, as in `recipe.Experts`.

    `correction` and `factors` are float32 [count]. With a `shared` expert every row has the last one too: its share is
    1, or the sigmoid of the last score if it is gated.
    """

    renormalised: bool
    sigmoid: bool
    groups: tuple[int, int]
    factor: float
    correction: Tensor | None = None
    factors: Tensor | None = None
    shared: Literal["whole", "gated"] | None = None
    by_best: bool = False


class PairTensors(NamedTuple):
    """Tensors of `Pairs` that `route` writes; `places` and `rows` are of pairs, the last four of tiles."""

    shares: Tensor
    places: Tensor
    rows: Tensor
    used: Tensor
    experts: Tensor
    begins: Tensor
    ends: Tensor


class RuleTensors(NamedTuple):
    """Tensors and the factor of a `Rule`; a factor of 1 is None, without a multiplication."""

    correction: Tensor | None
    factors: Tensor | None
    factor: float | None


class RouteShape(NamedTuple):
    """Constants of the program: the rule, rows and experts as powers of two, rows of a tile, and most of an expert."""

    top: int
    shared: str | None
    sigmoid: bool
    renormalised: bool
    groups: int
    kept: int
    by_best: bool
    rows: int
    experts: int
    tile: int
    most: int

    @property
    def pairs(self) -> int:
        """Pairs of a row."""
        return self.top + (self.shared is not None)

    @property
    def levels(self) -> int:
        """Halvings of a row's experts to one."""
        return self.experts.bit_length() - 1


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _route(
    scores: PartialSums,
    rule: RuleTensors,
    last: tl.tensor,
    skip: tl.tensor,
    out: PairTensors,
    rows: tl.tensor,
    count: tl.tensor,
    shape: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    if last is not None:
        rows = tl.minimum(rows, tl.load(last) + 1)
    share, order = _chosen(scores, rule, rows, count, shape)
    row, e = tl.arange(0, shape.rows)[:, None], tl.arange(0, shape.experts)[None, :]
    TILE: tl.constexpr = shape.tile
    taken = order < shape.top
    ones = taken.to(tl.int32)
    many = tl.sum(ones, 0)
    begin = tl.cumsum(many, 0) - many
    sorted_pair = begin[None, :] + tl.cumsum(ones, 0) - ones
    pair = row * shape.pairs + order
    tl.store(out.shares + pair, share, mask=taken)
    tl.store(out.places + pair, sorted_pair, mask=taken)
    tl.store(out.rows + sorted_pair, tl.broadcast_to(row, (shape.rows, shape.experts)), mask=taken)
    tiles = (many + TILE - 1) // TILE
    many_tiles = tl.sum(tiles, 0)
    slot, number = (tl.cumsum(tiles, 0) - tiles)[:, None], tl.arange(0, shape.most)[None, :]
    needed = number < tiles[:, None]
    first = begin[:, None] + number * TILE
    tl.store(out.experts + slot + number, tl.broadcast_to(tl.trans(e), (shape.experts, shape.most)), mask=needed)
    tl.store(out.begins + slot + number, first, mask=needed)
    tl.store(out.ends + slot + number, tl.minimum(first + TILE, (begin + many)[:, None]), mask=needed)
    if shape.shared is not None:
        many_tiles = _add_shared(scores, out, rows, count, tl.sum(many, 0), many_tiles, shape)
    tl.store(out.used, many_tiles)


@triton.jit  # type: ignore[untyped-decorator]
def _chosen(
    scores: PartialSums, rule: RuleTensors, rows: tl.tensor, count: tl.tensor, shape: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return the shares of experts and their order in a row, float32 and int32 [ROWS, EXPERTS]; `top`: not chosen."""
    ROWS: tl.constexpr = shape.rows
    EXPERTS: tl.constexpr = shape.experts
    TOP: tl.constexpr = shape.top
    LEVELS: tl.constexpr = shape.levels
    row, e = tl.arange(0, ROWS)[:, None], tl.arange(0, EXPERTS)[None, :]
    there = (row < rows) & (e < count)
    score = summed(scores.first + row * scores.row + e, there, scores)
    share = tl.where(there, score, float("-inf"))
    if not shape.sigmoid:
        peak = tl.max(share, 1)[:, None]
        share -= tl.where(peak == float("-inf"), 0.0, peak)
    share = tl.sigmoid(share) if shape.sigmoid else tl.exp(share)
    # A score that is no number counts as the least: every pair has a place in any case.
    share = tl.where(there & (share == share), share, 0.0)
    rank = share
    if not shape.sigmoid:
        # By halves, for a reduction's order would depend on the number of rows.
        total = share
        for level in tl.static_range(LEVELS):
            left, right = tl.split(tl.reshape(total, (ROWS, EXPERTS >> (level + 1), 2)))
            total = left + right
        share = share / tl.where(row < rows, tl.reshape(total, (ROWS, 1)), 1.0)
    if rule.correction is not None:
        rank = share + tl.load(rule.correction + e, mask=e < count, other=0.0)
    if shape.kept < shape.groups:
        rank = _in_groups(rank, e, count, there, shape)
    order = tl.full((ROWS, EXPERTS), TOP, tl.int32)
    together = tl.zeros((ROWS, 1), tl.float32)
    for k in range(TOP):
        free = there & (order == TOP)
        best = tl.max(tl.where(free, rank, float("-inf")), 1)[:, None]
        chosen = e == tl.min(tl.where(free & (rank == best), e, EXPERTS), 1)[:, None]
        together += tl.sum(tl.where(chosen, share, 0.0), 1)[:, None]
        order = tl.where(chosen, k, order)
    if shape.renormalised:
        share = share / tl.where(row < rows, together, 1.0)
    if rule.factors is not None:
        share = share * tl.load(rule.factors + e, mask=e < count, other=0.0)
    if rule.factor is not None:
        share = share * rule.factor
    return share, order


@triton.jit  # type: ignore[untyped-decorator]
def _add_shared(
    scores: PartialSums,
    out: PairTensors,
    rows: tl.tensor,
    count: tl.tensor,
    before: tl.tensor,
    tiles: tl.tensor,
    shape: tl.constexpr,
) -> tl.tensor:
    """Write the pairs of a shared expert after `before` others in so many `tiles`, and return the number of all."""
    TILE: tl.constexpr = shape.tile
    MOST: tl.constexpr = shape.most
    # The last expert's pairs are those of all rows.
    r, n = tl.arange(0, shape.rows), tl.arange(0, MOST)
    share = tl.zeros_like(r).to(tl.float32) + 1.0
    if shape.shared == "gated":
        share = tl.sigmoid(summed(scores.first + r * scores.row + count, r < rows, scores))
    tl.store(out.shares + r * shape.pairs + shape.top, share, mask=r < rows)
    tl.store(out.places + r * shape.pairs + shape.top, before + r, mask=r < rows)
    tl.store(out.rows + before + r, r, mask=r < rows)
    needed = n * TILE < rows
    tl.store(out.experts + tiles + n, tl.full((MOST,), 0, tl.int32) + count, mask=needed)
    tl.store(out.begins + tiles + n, before + n * TILE, mask=needed)
    tl.store(out.ends + tiles + n, before + tl.minimum(n * TILE + TILE, rows), mask=needed)
    return tiles + (rows + TILE - 1) // TILE


@triton.jit  # type: ignore[untyped-decorator]
def _in_groups(
    rank: tl.tensor,
    e: tl.tensor,
    count: tl.tensor,
    there: tl.tensor,
    shape: tl.constexpr,
) -> tl.tensor:
    """Leave the ranks of KEPT of GROUPS groups, those with the largest sums of their two largest; the rest is -inf.

    By their best a group goes by its largest alone.
    """
    GROUPS: tl.constexpr = shape.groups
    group = e // (count // GROUPS)
    of_group = tl.zeros_like(rank)
    sums = ()
    for g in tl.static_range(GROUPS):
        own = tl.where(there & (group == g), rank, float("-inf"))
        best = tl.max(own, 1)[:, None]
        both = best
        if not shape.by_best:
            at = tl.min(tl.where(own == best, e, count), 1)[:, None]
            both += tl.max(tl.where(e == at, float("-inf"), own), 1)[:, None]
        of_group = tl.where(group == g, both, of_group)
        sums += (both,)  # type: ignore[assignment]
    before = tl.zeros_like(group)
    for g in tl.static_range(GROUPS):
        before += ((sums[g] > of_group) | ((sums[g] == of_group) & (g < group))).to(tl.int32)
    return tl.where(before < shape.kept, rank, float("-inf"))


def allocated(count: int, top: int, device: torch.device) -> Pairs:
    """Allocate the pairs of passes of any number of rows."""

    def integers(size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=device)

    many, tiles = PASS_ROWS * top, most_tiles(count, top)
    shares = torch.zeros(many, device=device)
    of_tiles = (integers(tiles) for _ in range(3))
    return Pairs(count, top, shares, integers(many), integers(many), integers(1), *of_tiles)


def route(scores: Tensor, rule: Rule, out: Pairs, rows: int, skip: Tensor | None, last: Tensor | None = None) -> None:
    """Choose the experts of each row, and sort the pairs.

    Of p = softmax(scores), or their sigmoids, the `top` largest are chosen, of equal ones those of lower experts.

    Args:
        scores: float32 [splits, >= rows, >= count], the router's partial sums; of a shared expert, the last one, there
            is one only if it is gated.
        skip: int32 [1]; non-zero skips the kernel.
        last: int32 [1], the last row that counts: those after it have no pairs, so that no expert is read for them.
    """
    count, top = out.count - (rule.shared is not None), out.top - (rule.shared is not None)
    experts, padded = triton.next_power_of_2(count), triton.next_power_of_2(rows)
    tile, _ = expert_tiles(rows, out.count, out.top)
    factor, most = None if rule.factor == 1 else rule.factor, max(1, padded // tile)
    choice = top, rule.shared, rule.sigmoid, rule.renormalised, *rule.groups, rule.by_best
    shape = RouteShape(*choice, padded, experts, tile, most)
    _route[(1,)](
        partial_sums(scores),
        RuleTensors(rule.correction, rule.factors, factor),
        last,
        skip,
        PairTensors(out.shares, out.places, out.rows, out.used, out.experts, out.begins, out.ends),
        rows,
        count,
        shape,
        num_warps=warps(padded, experts),
        enable_fp_fusion=False,
    )


def warps(rows: int, experts: int) -> int:
    """Warps of the program: one or more rows each, so that no sum along a row crosses warps."""
    return min(16, rows, max(1, rows * experts // 256))


def reference_route(scores: Tensor, rule: Rule, top: int) -> tuple[Tensor, Tensor]:
    """Shares [rows, top] of the chosen experts, and these, int64, of the summed scores [rows, count].

    A shared expert comes last, and counts in `top`.
    """
    if rule.shared:
        gates, scores = (scores[:, -1:], scores[:, :-1]) if rule.shared == "gated" else (None, scores)
        shares, chosen = reference_route(scores, replace(rule, shared=None), top - 1)
        own = torch.ones_like(shares[:, :1]) if gates is None else gates.sigmoid()
        last = torch.full_like(chosen[:, :1], scores.shape[1])
        return torch.cat([shares, own], 1), torch.cat([chosen, last], 1)
    share = scores.sigmoid() if rule.sigmoid else scores.softmax(-1)
    rank = share if rule.correction is None else share + rule.correction
    groups, kept = rule.groups
    if kept < groups:
        grouped = rank.unflatten(-1, (groups, -1))
        sums = grouped.topk(1 if rule.by_best else 2).values.sum(-1)
        left = sums.sort(dim=-1, descending=True, stable=True).indices[:, kept:]
        rank = grouped.scatter(1, left[..., None].expand(-1, -1, grouped.shape[-1]), float("-inf")).flatten(1)
    chosen = rank.sort(dim=-1, descending=True, stable=True).indices[:, :top]
    share = share.gather(1, chosen)
    if rule.renormalised:
        share = share / share.sum(-1, keepdim=True)
    if rule.factors is not None:
        share = share * rule.factors[chosen]
    return rule.factor * share, chosen
