"""The pairs of a pass, a row and one of its experts each: sorted by expert, each expert's by row, in tiles."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import PROMPT_ROWS, most_tiles
from specchat.engine.kernels.partial_sums import PartialSums, summed


@dataclass(frozen=True)
class Pairs:
    """The pairs of a pass of R rows with `top` of `count` experts each, written by `route`.

    A shared expert is the last one, of every row.

    Attributes:
        shares: float32 [R * top], of the k-th expert of row r at r * top + k.
        chosen: int32 [R * top], these experts without a shared one; only where several programs choose.
        places: int32 [R * top], the place of this pair among the sorted ones.
        rows: int32 [R * top], the row of each sorted pair.
        used: int32 [1], number of tiles.
        experts, begins, ends: int32 [tiles], the expert, the first sorted pair and the end of those of each tile.
    """

    count: int
    top: int
    shares: Tensor
    chosen: Tensor
    places: Tensor
    rows: Tensor
    used: Tensor
    experts: Tensor
    begins: Tensor
    ends: Tensor


class PairTensors(NamedTuple):
    """Tensors of `Pairs` that `route` writes, those up to `rows` of pairs, the last four of tiles."""

    shares: Tensor
    chosen: Tensor
    places: Tensor
    rows: Tensor
    used: Tensor
    experts: Tensor
    begins: Tensor
    ends: Tensor


class RouteShape(NamedTuple):
    """Constants of both programs: the rule, rows and experts as powers of two, rows of a tile, and most of an expert.

    A program chooses for `rows` rows, `programs` of them for all.
    """

    top: int
    shared: str | None
    sigmoid: bool
    renormalised: bool
    groups: int
    kept: int
    by_best: bool
    rows: int
    programs: int
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
def _sort_pairs(
    scores: PartialSums,
    last: tl.tensor,
    skip: tl.tensor,
    out: PairTensors,
    rows: tl.tensor,
    count: tl.tensor,
    shape: tl.constexpr,
) -> None:
    """Sort the pairs that the programs of `_route` chose, the rows of one after another."""
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    if last is not None:
        rows = tl.minimum(rows, tl.load(last) + 1)
    EXPERTS: tl.constexpr = shape.experts
    many = tl.zeros((EXPERTS,), tl.int32)
    for program in range(shape.programs):
        _, order = _order(out, program, rows, shape)
        many += tl.sum((order < shape.top).to(tl.int32), 0)
    begin = tl.cumsum(many, 0) - many
    before = begin
    for program in range(shape.programs):
        row, order = _order(out, program, rows, shape)
        before = place_pairs(out, row, order, before, shape)
    cut_into_tiles(scores, out, begin, many, rows, count, shape)


@triton.jit  # type: ignore[untyped-decorator]
def _order(out: PairTensors, program: tl.tensor, rows: tl.tensor, shape: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """Return the rows of a program [ROWS, 1], and the order of the experts chosen for each."""
    row, e = program * shape.rows + tl.arange(0, shape.rows)[:, None], tl.arange(0, shape.experts)[None, :]
    ROWS: tl.constexpr = shape.rows
    EXPERTS: tl.constexpr = shape.experts
    TOP: tl.constexpr = shape.top
    order = tl.full((ROWS, EXPERTS), TOP, tl.int32)
    for k in tl.static_range(TOP):
        order = tl.where(e == tl.load(out.chosen + row * shape.pairs + k, mask=row < rows, other=-1), k, order)
    return row, order


@triton.jit  # type: ignore[untyped-decorator]
def place_pairs(
    out: PairTensors, row: tl.tensor, order: tl.tensor, before: tl.tensor, shape: tl.constexpr
) -> tl.tensor:
    """Give pairs their places among the sorted ones, each expert's from `before` on, and return the ends of these."""
    taken = order < shape.top
    ones = taken.to(tl.int32)
    sorted_pair = before[None, :] + tl.cumsum(ones, 0) - ones
    tl.store(out.places + row * shape.pairs + order, sorted_pair, mask=taken)
    tl.store(out.rows + sorted_pair, tl.broadcast_to(row, (shape.rows, shape.experts)), mask=taken)
    return before + tl.sum(ones, 0)


@triton.jit  # type: ignore[untyped-decorator]
def cut_into_tiles(
    scores: PartialSums,
    out: PairTensors,
    begin: tl.tensor,
    many: tl.tensor,
    rows: tl.tensor,
    count: tl.tensor,
    shape: tl.constexpr,
) -> None:
    """Cut the pairs of each expert into tiles: so `many`, from `begin` on."""
    TILE: tl.constexpr = shape.tile
    e = tl.arange(0, shape.experts)[:, None]
    tiles = (many + TILE - 1) // TILE
    many_tiles = tl.sum(tiles, 0)
    slot, number = (tl.cumsum(tiles, 0) - tiles)[:, None], tl.arange(0, shape.most)[None, :]
    needed = number < tiles[:, None]
    first = begin[:, None] + number * TILE
    tl.store(out.experts + slot + number, tl.broadcast_to(e, (shape.experts, shape.most)), mask=needed)
    tl.store(out.begins + slot + number, first, mask=needed)
    tl.store(out.ends + slot + number, tl.minimum(first + TILE, (begin + many)[:, None]), mask=needed)
    if shape.shared is not None:
        many_tiles = _add_shared(scores, out, rows, count, tl.sum(many, 0), many_tiles, shape)
    tl.store(out.used, many_tiles)


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
    r, n = tl.arange(0, shape.rows * shape.programs), tl.arange(0, MOST)
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


def sort(
    scores: PartialSums,
    last: Tensor | None,
    skip: Tensor | None,
    out: PairTensors,
    rows: int,
    count: int,
    shape: RouteShape,
    num_warps: int,
) -> None:
    """Sort and cut the pairs that programs of `shape` chose; arguments as those of their kernel."""
    _sort_pairs[(1,)](scores, last, skip, out, rows, count, shape, num_warps=num_warps, enable_fp_fusion=False)


def allocated(count: int, top: int, device: torch.device) -> Pairs:
    """Allocate the pairs of passes of any number of rows."""

    def integers(size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=device)

    many, tiles = PROMPT_ROWS * top, most_tiles(count, top)
    shares = torch.zeros(many, device=device)
    chosen, places, rows = (integers(many) for _ in range(3))
    return Pairs(count, top, shares, chosen, places, rows, integers(1), *(integers(tiles) for _ in range(3)))
