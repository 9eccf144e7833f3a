"""The output of a mixture of experts, added to the residual stream, and the next norm, in one launch."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.ahead import Ahead, fetch
from specchat.engine.kernels.norm import check_width, normed, reference_norm, stored, stored_unless_skipped, write_norm
from specchat.engine.kernels.partial_sums import summed
from specchat.engine.kernels.route import Pairs


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


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _add_mixture(
    residual: tl.tensor,
    made: tl.tensor,
    shares: tl.tensor,
    places: tl.tensor,
    beside: tl.tensor,
    gate: tl.tensor,
    after_made: tl.tensor,
    after_beside: tl.tensor,
    after: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    last: tl.tensor,
    skip: tl.tensor,
    scalar: tl.tensor,
    earlier: tl.tensor,
    ahead: tl.tensor,
    rows: tl.tensor,
    stride_split: tl.tensor,
    stride_beside: tl.tensor,
    stride_gate: tl.tensor,
    hidden: tl.tensor,
    eps_made: tl.tensor,
    eps_beside: tl.tensor,
    after_eps: tl.tensor,
    eps: tl.tensor,
    factor: tl.tensor,
    TOP: tl.constexpr,
    SPLITS: tl.constexpr,
    BESIDE: tl.constexpr,
    GATE: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    if ahead is not None:  # noqa: SIM102
        if row >= rows:
            fetch(ahead, row - rows)
            return
    column = tl.arange(0, COLUMNS)
    inside = column < hidden
    x = tl.load(residual + row * hidden + column, mask=inside, other=0.0)
    left_out = 0
    if skip is not None:
        left_out = tl.load(skip)
    # A row after the last has no pairs, and its places may be of any other pass.
    there = True
    if last is not None:
        there = row <= tl.load(last)
    if left_out == 0:
        added = tl.zeros((COLUMNS,), tl.float32)
        if there:
            for k in tl.static_range(TOP):
                place = tl.load(places + row * TOP + k)
                one = summed(made + place * hidden + column, inside, stride_split, SPLITS)
                added += tl.load(shares + row * TOP + k) * one
            if after_made is not None:
                added = normed(added, after_made + column, inside, hidden, eps_made)
            if beside is not None:
                one = summed(beside + row * hidden + column, inside, stride_beside, BESIDE)
                if gate is not None:
                    score = tl.load(gate + row)
                    for split in tl.static_range(1, GATE):
                        score += tl.load(gate + split * stride_gate + row)
                    one = one * tl.sigmoid(score)
                if after_beside is not None:
                    one = normed(one, after_beside + column, inside, hidden, eps_beside)
                added += one
        if after is not None:
            added = normed(added, after + column, inside, hidden, after_eps)
        if factor is not None:
            added = added * factor
        x = stored(x + added, residual + row * hidden + column, inside, scalar)
    else:
        x = stored_unless_skipped(x, residual + row * hidden + column, inside, scalar, skip, earlier)
    write_norm(x, weight, eps, out, row, column, inside, hidden)


def add_mixture(
    residual: Tensor,
    mixture: MixtureOutput,
    weight: Tensor | None,
    eps: float,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    after: tuple[Tensor, float] | None = None,
    factor: float = 1.0,
    scalar: Tensor | None = None,
    earlier: Tensor | None = None,
    ahead: Ahead | None = None,
) -> None:
    """Compute residual += factor * the mixture's output, the experts in order of k; out = RMSNorm(residual).

    All but `mixture` is as in `norm.add_rms_norm`.
    """
    hidden = check_width(residual)
    of, columns = mixture, triton.next_power_of_2(hidden)
    _add_mixture[(rows + (ahead.parts if ahead else 0),)](
        residual,
        of.made,
        of.pairs.shares,
        of.pairs.places,
        of.beside,
        of.gate,
        of.after and of.after[0],
        of.after_beside and of.after_beside[0],
        after and after[0],
        weight,
        out,
        of.last,
        skip,
        scalar,
        earlier,
        ahead and ahead.start,
        rows,
        of.made.stride(0),
        0 if of.beside is None else of.beside.stride(0),
        0 if of.gate is None else of.gate.stride(0),
        hidden,
        of.after and of.after[1],
        of.after_beside and of.after_beside[1],
        after and after[1],
        eps,
        # A factor of 1 compiles without the multiplication.
        None if factor == 1 else factor,
        TOP=of.pairs.top,
        SPLITS=of.made.shape[0],
        BESIDE=0 if of.beside is None else of.beside.shape[0],
        GATE=0 if of.gate is None else of.gate.shape[0],
        COLUMNS=columns,
        num_warps=warps(columns),
        enable_fp_fusion=True,
    )


def warps(columns: int) -> int:
    """Warps for a row of `columns`: 8 numbers of each expert a thread, loaded at a time."""
    return min(16, max(1, columns // 256))


def reference_mixture(mixture: MixtureOutput, rows: int) -> Tensor:
    """What `add_mixture` adds without `after` and factor, in the precision of `made`: [rows, H]."""
    top, made = mixture.pairs.top, mixture.made
    shares, places = (of[: rows * top].view(rows, top) for of in (mixture.pairs.shares, mixture.pairs.places))
    total = (shares.to(made)[..., None] * made.sum(0)[places.long()]).sum(1)
    total = _normed(total, mixture.after)
    if mixture.beside is None:
        return total
    one = mixture.beside.to(made).sum(0)[:rows]
    if mixture.gate is not None:
        one = torch.sigmoid(mixture.gate.to(made).sum(0)[:rows]) * one
    return total + _normed(one, mixture.after_beside)


def _normed(x: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
    return x if norm is None else reference_norm(x, norm[0].to(x), norm[1])
