"""The output of a mixture of experts: that of a row's experts by their shares, and of the MLP beside them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.norm import normed, reference_norm, warps
from specchat.engine.kernels.partial_sums import summed
from specchat.engine.kernels.route import Pairs

COLUMNS = 512
"""Columns of one program where nothing is normed."""


@triton.jit  # type: ignore[untyped-decorator]
def _mix(
    made: tl.tensor,
    shares: tl.tensor,
    places: tl.tensor,
    beside: tl.tensor,
    gate: tl.tensor,
    after: tl.tensor,
    after_beside: tl.tensor,
    last: tl.tensor,
    skip: tl.tensor,
    out: tl.tensor,
    stride_split: tl.tensor,
    stride_beside: tl.tensor,
    stride_gate: tl.tensor,
    hidden: tl.tensor,
    eps: tl.tensor,
    eps_beside: tl.tensor,
    TOP: tl.constexpr,
    SPLITS: tl.constexpr,
    BESIDE: tl.constexpr,
    GATE: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    if skip is not None:  # noqa: SIM102
        if tl.load(skip) != 0:
            return
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < hidden
    total = tl.zeros((COLUMNS,), tl.float32)
    if last is not None:  # noqa: SIM102
        if row > tl.load(last):
            tl.store(out + row * hidden + column, total, mask=inside)
            return
    for k in tl.static_range(TOP):
        one = summed(made + tl.load(places + row * TOP + k) * hidden + column, inside, stride_split, SPLITS)
        total += tl.load(shares + row * TOP + k) * one
    if after is not None:
        total = normed(total, after + column, inside, hidden, eps)
    if beside is not None:
        one = summed(beside + row * hidden + column, inside, stride_beside, BESIDE)
        if gate is not None:
            score = tl.load(gate + row)
            for split in tl.static_range(1, GATE):
                score += tl.load(gate + split * stride_gate + row)
            one = one * tl.sigmoid(score)
        if after_beside is not None:
            one = normed(one, after_beside + column, inside, hidden, eps_beside)
        total += one
    tl.store(out + row * hidden + column, total, mask=inside)


def mix(
    made: Tensor,
    pairs: Pairs,
    beside: Tensor | None,
    gate: Tensor | None,
    out: Tensor,
    rows: int,
    skip: Tensor | None,
    last: Tensor | None = None,
    after: tuple[Tensor, float] | None = None,
    after_beside: tuple[Tensor, float] | None = None,
) -> None:
    """Compute out[r] = sum of shares[r, k] * made of its k-th expert, in order of k, then sigmoid(gate[r]) * beside[r].

    Args:
        made: float32 [splits, pairs, H], the partial sums of the experts' last product, of sorted pairs.
        beside: float32 [splits, R, H], those of the MLP beside them; None adds nothing.
        gate: float32 [splits, R, 1], partial sums of the scores of `beside`; None: its share is 1.
        out: float32 [1, R, H], written.
        skip: int32 [1]; non-zero skips the kernel.
        last: int32 [1], the last row that has pairs, as in `route`; rows after it get zeros.
        after, after_beside: weight and eps of a norm of either sum.
    """
    hidden = out.shape[-1]
    columns = COLUMNS if after is None and after_beside is None else triton.next_power_of_2(hidden)
    _mix[(rows, triton.cdiv(hidden, columns))](
        made,
        pairs.shares,
        pairs.places,
        beside,
        gate,
        after and after[0],
        after_beside and after_beside[0],
        last,
        skip,
        out,
        made.stride(0),
        0 if beside is None else beside.stride(0),
        0 if gate is None else gate.stride(0),
        hidden,
        after and after[1],
        after_beside and after_beside[1],
        TOP=pairs.top,
        SPLITS=made.shape[0],
        BESIDE=0 if beside is None else beside.shape[0],
        GATE=0 if gate is None else gate.shape[0],
        COLUMNS=columns,
        num_warps=max(4, warps(columns)),
        enable_fp_fusion=True,
    )


def reference_mix(
    made: Tensor,
    shares: Tensor,
    places: Tensor,
    beside: Tensor | None,
    gate: Tensor | None,
    after: tuple[Tensor, float] | None = None,
    after_beside: tuple[Tensor, float] | None = None,
) -> Tensor:
    """Output of `mix` in the precision of `made`: [rows, H]; `shares` and `places` [rows, top]."""
    total = (shares.to(made)[..., None] * made.sum(0)[places.long()]).sum(1)
    total = total if after is None else reference_norm(total, *after)
    if beside is None:
        return total
    one = beside.to(made).sum(0)[: len(total)]
    if gate is not None:
        one = torch.sigmoid(gate.to(made).sum(0)[: len(total)]) * one
    return total + (one if after_beside is None else reference_norm(one, *after_beside))
