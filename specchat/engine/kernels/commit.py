"""The end of a step: how many drafted tokens stay, what is added to the text, where the next step starts.

The reference is `judge` of decoding/acceptance.py and `HostExecutor.verdict` of decoding/host.py.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.limits import END_TOKENS
from specchat.engine.kernels.verify_state import VerifyState


@triton.jit  # type: ignore[untyped-decorator]
def _commit(
    chosen: tl.tensor,
    fed: tl.tensor,
    drafted: tl.tensor,
    length: tl.tensor,
    counts: tl.tensor,
    eos: tl.tensor,
    result: tl.tensor,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    END_TOKENS: tl.constexpr,
) -> None:
    i = tl.arange(0, SLOTS)
    n = tl.load(drafted)
    row = i < ROWS
    ours = tl.load(chosen + i, mask=row, other=-1)
    theirs = tl.load(fed + 1 + i, mask=row & (i < n), other=-1)
    accepted = tl.min(tl.where((i < n) & (ours == theirs), SLOTS, i), 0)
    tested = tl.minimum(accepted + 1, n)
    # Up to the first row that refuses, what was chosen is what was drafted.
    ends = tl.load(eos + tl.arange(0, END_TOKENS))
    final = tl.max((ours[:, None] == ends[None, :]).to(tl.int32), 1) != 0
    emitted = tl.minimum(accepted, tl.min(tl.where(final & row, i, SLOTS), 0)) + 1
    mine = i < emitted
    alike = (ours[:, None] == ours[None, :]) & mine[None, :]
    times = tl.sum(alike.to(tl.int32), 1)
    first = tl.min(tl.where(alike, i[None, :], SLOTS), 1) == i
    # One program, and one slot of it a token: nobody else adds to the same count.
    count = tl.load(counts + ours, mask=mine & first, other=0)
    start = tl.load(length)
    last = tl.sum(tl.where(i == emitted - 1, ours, 0), 0)
    tl.store(counts + ours, count + times, mask=mine & first)
    tl.store(length, start + emitted)
    tl.store(fed, last)
    tl.store(result, accepted)
    tl.store(result + 1, tested)
    tl.store(result + 2, emitted)
    tl.store(result + 3 + i, tl.where(mine, ours, -1), mask=i < ROWS + 1)


def commit(chosen: Tensor, state: VerifyState) -> None:
    """Take the chosen tokens into the state: result, counts, length and fed[0].

    A drafted token stays where the row that judged it chose the same; the row after the last one that stays has the
    step's own token. Nothing is added after an end-of-text token.

    Args:
        chosen: int32 [rows + 1], token r by step row r.
    """
    rows = state.fed.shape[0] - 1
    _commit[(1,)](
        chosen,
        state.fed,
        state.drafted,
        state.length,
        state.counts,
        state.eos,
        state.result,
        ROWS=rows,
        SLOTS=triton.next_power_of_2(rows + 1),
        END_TOKENS=END_TOKENS,
        num_warps=1,
        enable_fp_fusion=True,
    )
