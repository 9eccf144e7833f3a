"""The experts of the rows of a pass, and the rows of each expert, in tiles for the products.

A row with one of its experts is a pair. Pairs are sorted by expert, each expert's by row, so that an expert is read
once for all rows of a tile. A row's choice is elementwise but for sums in a fixed order. Where one program has room for
the scores of all rows it also sorts their pairs; otherwise several choose, and a second launch sorts.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import expert_tiles
from specchat.engine.kernels.pairs import Pairs, PairTensors, RouteShape, cut_into_tiles, place_pairs, sort
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed

SCORES = 4096
"""Scores of rows that one program holds at most, in 16 warps."""


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


class RuleTensors(NamedTuple):
    """Tensors and the factor of a `Rule`; a factor of 1 is None, without a multiplication."""

    correction: Tensor | None
    factors: Tensor | None
    factor: float | None


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
    row, e = tl.program_id(0) * shape.rows + tl.arange(0, shape.rows)[:, None], tl.arange(0, shape.experts)[None, :]
    share, order = _chosen(scores, rule, row, rows, count, shape)
    taken = order < shape.top
    pair = row * shape.pairs + order
    tl.store(out.shares + pair, share, mask=taken)
    if shape.programs > 1:
        tl.store(out.chosen + pair, tl.broadcast_to(e, (shape.rows, shape.experts)), mask=taken)
    else:
        many = tl.sum(taken.to(tl.int32), 0)
        begin = tl.cumsum(many, 0) - many
        place_pairs(out, row, order, begin, shape)
        cut_into_tiles(scores, out, begin, many, rows, count, shape)


@triton.jit  # type: ignore[untyped-decorator]
def _chosen(
    scores: PartialSums, rule: RuleTensors, row: tl.tensor, rows: tl.tensor, count: tl.tensor, shape: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Return the shares of experts and their order in each `row`, float32 and int32 [ROWS, EXPERTS]; `top`: none."""
    ROWS: tl.constexpr = shape.rows
    EXPERTS: tl.constexpr = shape.experts
    TOP: tl.constexpr = shape.top
    LEVELS: tl.constexpr = shape.levels
    e = tl.arange(0, EXPERTS)[None, :]
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
    together = min(padded, max(1, SCORES // experts))
    tile, _ = expert_tiles(rows, out.count, out.top)
    factor, most = None if rule.factor == 1 else rule.factor, max(1, padded // tile)
    choice = top, rule.shared, rule.sigmoid, rule.renormalised, *rule.groups, rule.by_best
    shape = RouteShape(*choice, together, padded // together, experts, tile, most)
    of_rule, sums = RuleTensors(rule.correction, rule.factors, factor), partial_sums(scores)
    tensors = PairTensors(*(getattr(out, name) for name in PairTensors._fields))
    # Eight scores a thread, for with 16 it spills.
    rest, warps = (last, skip, tensors, rows, count, shape), max(1, together * experts // 256)
    _route[(shape.programs,)](sums, of_rule, *rest, num_warps=warps, enable_fp_fusion=False)
    if shape.programs > 1:
        sort(sums, *rest, num_warps=warps)
