"""End of a step: accepts draft tokens, adds tokens to the text, and sets the start of the next step.

The reference is `judge` of decoding/acceptance.py and `HostExecutor.outcome` of decoding/host.py.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import END_TOKENS
from specchat.engine.kernels.verify_state import VerifyState


@triton.jit  # type: ignore[untyped-decorator]
def _commit(
    chosen: tl.tensor,
    state: VerifyState,
    tail: tl.tensor,
    recent: tl.tensor,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    END_TOKENS: tl.constexpr,
    RECENT: tl.constexpr,
) -> None:
    i = tl.arange(0, SLOTS)
    n = tl.load(state.drafted)
    there = i <= n
    nodes = i < ROWS + 1
    fed_to, parent = tl.load(state.fed + i, mask=nodes, other=0), tl.load(state.parents + i, mask=nodes, other=-1)
    child = there & (i > 0)
    above = tl.load(state.parents + i, mask=child, other=-1)
    liked = child & (tl.load(state.fed + i, mask=child, other=-1) == tl.load(chosen + above, mask=child, other=-1))
    # A node is accepted if it and all its ancestors but node 0 were chosen: these form one path.
    others = tl.load(state.path + i, mask=there, other=0).to(tl.int32) & ~tl.sum(liked.to(tl.int32) << i, 0)
    is_accepted = there & ((others >> 1) == 0)
    accepted = tl.sum(is_accepted.to(tl.int32), 0) - 1
    end = tl.max(tl.where(is_accepted, i, 0), 0)
    tested = accepted + tl.max((above == end).to(tl.int32), 0)
    # Choices of the accepted nodes, by depth: the draft token after each, and the last one's own.
    level = tl.load(state.depth + i, mask=there, other=-1)
    node = tl.sum(tl.where(is_accepted[None, :] & (level[None, :] == i[:, None]), i[None, :], 0), 1)
    ours = tl.load(chosen + node, mask=i <= accepted, other=-1)
    ends = tl.load(state.eos + tl.arange(0, END_TOKENS))
    final = tl.max((ours[:, None] == ends[None, :]).to(tl.int32), 1) != 0
    emitted = tl.minimum(accepted, tl.min(tl.where(final, i, SLOTS), 0)) + 1
    mine = i < emitted
    alike = (ours[:, None] == ours[None, :]) & mine[None, :]
    times = tl.sum(alike.to(tl.int32), 1)
    first = tl.min(tl.where(alike, i[None, :], SLOTS), 1) == i
    # One program with one lane a token: no other adds to the same count.
    count = tl.load(state.counts + ours, mask=mine & first, other=0)
    start = tl.load(state.length)
    last = tl.sum(tl.where(i == emitted - 1, ours, 0), 0)
    tl.store(state.counts + ours, count + times, mask=mine & first)
    tl.store(state.length, start + emitted)
    tl.store(state.fed, last)
    # The text ends with the pending token and those that are added.
    pending = tl.sum(tl.where(i == 0, fed_to, 0), 0)
    tl.store(tail, tl.where(emitted > 1, tl.sum(tl.where(i == emitted - 2, ours, 0), 0), pending))
    tl.store(tail + 1, last)
    # The text's last tokens: those before, moved to the front, then ours.
    k = tl.arange(0, RECENT)
    before = tl.load(recent + k + emitted, mask=k + emitted < RECENT, other=0)
    added = tl.sum(tl.where(k[:, None] + emitted - RECENT == i[None, :], ours[None, :], 0), 1)
    # Write only after other threads of this program have read.
    tl.debug_barrier()
    tl.store(recent + k, tl.where(k + emitted < RECENT, before, added))
    tl.store(state.report, accepted)
    tl.store(state.report + 1, tested)
    tl.store(state.report + 2, emitted)
    tl.store(state.report + 3 + i, tl.where(mine, ours, -1), mask=nodes)
    tl.store(state.report + 3 + (ROWS + 1) + i, tl.where(i <= accepted, node, -1), mask=nodes)
    tl.store(state.report + 4 + 2 * (ROWS + 1) + i, fed_to, mask=nodes)
    tl.store(state.report + 4 + 3 * (ROWS + 1) + i, parent, mask=nodes)


def commit(chosen: Tensor, state: VerifyState, tail: Tensor, recent: Tensor) -> None:
    """Commit the chosen tokens to the state: report (but `drafted` and `likeliest`), counts, length and fed[0].

    From node 0 on, a draft token is accepted if its parent's row chose the same. The row of the last accepted one has
    the step's own token. Nothing is added after an end-of-text token.

    Args:
        chosen: int32 [rows + 1], token r chosen by the row of node r.
        tail: int32 [>= 2], receives the last two tokens of the text.
        recent: int32 [a power of two], the last tokens of the text, in order; earlier ones make room for those added.
    """
    rows = state.fed.shape[0] - 1
    _commit[(1,)](
        chosen,
        state,
        tail,
        recent,
        ROWS=rows,
        SLOTS=triton.next_power_of_2(rows + 1),
        END_TOKENS=END_TOKENS,
        RECENT=recent.shape[0],
        num_warps=1,
        enable_fp_fusion=True,
    )
