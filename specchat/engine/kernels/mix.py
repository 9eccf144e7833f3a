"""The output of a mixture of experts, added to the residual stream, and the next norm, in one launch."""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.norm import (
    NormOf,
    OtherNorm,
    ResidualUpdate,
    check_width,
    normed,
    stored,
    stored_unless_skipped,
    write_norm,
)
from specchat.engine.kernels.pairs import Pairs
from specchat.engine.kernels.partial_sums import PartialSums, partial_sums, summed


@dataclass(frozen=True)
class MixtureOutput:
    """The parts of a mixture's output: sum of shares[r, k] * made of the k-th expert, then sigmoid(gate[r]) * beside.

    Attributes:
        made: float32 [splits, pairs, H], the partial sums of the experts' last product, of sorted pairs.
        beside: float32 [splits, R, H], those of the MLP beside them; None adds nothing.
        gate: float32 [splits, R, 1], partial sums of the scores of `beside`; None: its share is 1.
        last: int32 [1], the last row that has pairs, as in `route`; nothing is added to rows after it.
        after, after_beside: weight and eps of a norm of either sum.
    """

    made: Tensor
    pairs: Pairs
    beside: Tensor | None = None
    gate: Tensor | None = None
    last: Tensor | None = None
    after: tuple[Tensor, float] | None = None
    after_beside: tuple[Tensor, float] | None = None


class MixtureTensors(NamedTuple):
    """A `MixtureOutput`, and the tensors of its pairs, for the kernel."""

    made: PartialSums
    shares: Tensor
    places: Tensor
    beside: PartialSums | None
    gate: PartialSums | None
    last: Tensor | None
    after: NormOf | None
    after_beside: NormOf | None


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _add_mixture(
    update: ResidualUpdate,
    of: MixtureTensors,
    norm: OtherNorm,
    ahead: tl.tensor,
    rows: tl.tensor,
    hidden: tl.tensor,
    TOP: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            fetch(ahead, row - rows)
            return
    column = tl.arange(0, COLUMNS)
    inside = column < hidden
    x = tl.load(update.residual + row * hidden + column, mask=inside, other=0.0)
    left_out = 0
    if update.skip is not None:
        left_out = tl.load(update.skip)
    # A row after the last has no pairs, and its places may be of any other pass.
    there = True
    if of.last is not None:
        there = row <= tl.load(of.last)
    if left_out == 0:
        added = tl.zeros((COLUMNS,), tl.float32)
        if there:
            for k in tl.static_range(TOP):
                pair = tl.load(of.places + row * TOP + k)
                one = summed(of.made.first + pair * hidden + column, inside, of.made)
                added += tl.load(of.shares + row * TOP + k) * one
            if of.after is not None:
                added = normed(added, of.after, column, inside, hidden)
            if of.beside is not None:
                one = summed(of.beside.first + row * hidden + column, inside, of.beside)
                if of.gate is not None:
                    score = tl.load(of.gate.first + row)
                    for split in tl.static_range(1, of.gate.splits):
                        score += tl.load(of.gate.first + split * of.gate.split + row)
                    one = one * tl.sigmoid(score)
                if of.after_beside is not None:
                    one = normed(one, of.after_beside, column, inside, hidden)
                added += one
        if update.after is not None:
            added = normed(added, update.after, column, inside, hidden)
        if update.factor is not None:
            added = added * update.factor
        x = stored(x + added, update, row * hidden + column, inside)
    else:
        x = stored_unless_skipped(x, update, row * hidden + column, inside)
    write_norm(x, norm, row, column, inside, hidden)


def add_mixture(
    update: ResidualUpdate, mixture: MixtureOutput, norm: OtherNorm, rows: int, ahead: Ahead | None = None
) -> None:
    """Compute residual += factor * the mixture's output, the experts in order of k; out = RMSNorm(residual).

    All but `mixture` is as in `norm.add_rms_norm`.
    """
    hidden = check_width(update.residual)
    of, columns = mixture, triton.next_power_of_2(hidden)
    beside, gate = (None if sums is None else partial_sums(sums) for sums in (of.beside, of.gate))
    norms = (norm and NormOf(*norm) for norm in (of.after, of.after_beside))
    _add_mixture[(rows + (ahead.parts if ahead else 0),)](
        update,
        MixtureTensors(partial_sums(of.made), of.pairs.shares, of.pairs.places, beside, gate, of.last, *norms),
        norm,
        ahead and ahead.start,
        rows,
        hidden,
        TOP=of.pairs.top,
        COLUMNS=columns,
        num_warps=warps(columns),
        enable_fp_fusion=True,
    )


def warps(columns: int) -> int:
    """Warps for a row of `columns`: 8 numbers of each expert a thread, loaded at a time."""
    return min(16, max(1, columns // 256))
