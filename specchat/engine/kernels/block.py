"""Block verification of a sampled chain on the device (Sun et al. 2024); decoding/acceptance.py has the formulas.

One program a row, after `choose.check` of the same rows. Each program walks the chain from its start, because a row's
token depends on earlier rows and on whether a longer prefix passes. Programs share no data.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import filters, noise
from specchat.engine.kernels.choose import check
from specchat.engine.kernels.verify_state import BLOCK, FILTERED, Scored, VerifyState

WARPS = 8

_FILTERED = tl.constexpr(FILTERED)


class Sampled(NamedTuple):
    """A sampled chain to judge: the target's rows, the draft's, and what random numbers are keyed by.

    Attributes:
        scored, stride: rows of the target after `choose`, and the elements from one row to the next.
        draft, draft_stride: those of the draft; row r holds the distribution of node r + 1.
        key, position: seed, and position of the first draft token.
        filtered: True if candidates are listed.
    """

    scored: Scored
    stride: tl.tensor
    draft: Scored
    draft_stride: tl.tensor
    key: tl.tensor
    position: tl.tensor
    filtered: tl.tensor


@triton.jit  # type: ignore[untyped-decorator]
def _distributions(chain: Sampled, row: tl.tensor, ids: tl.tensor, inside: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Probabilities float32 of `ids` in a row of the target, and in the draft distribution of the token after it."""
    target = filters.distribution(chain.scored, chain.stride, row, True)
    draft = filters.distribution(chain.draft, chain.draft_stride, row, True)
    return filters.probability(target, ids, inside), filters.probability(draft, ids, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _passes(chain: Sampled, i: tl.tensor, end: tl.tensor, reached: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """True if the first `i` > 0 tokens pass; `reached` is their P."""
    passing = reached
    of = tl.full((), 1.0, tl.float32)
    if (i < end) & (reached < 1.0):
        passing = tl.full((), 0.0, tl.float32)
        candidates = chain.scored.candidates + i.to(tl.int64) * chain.stride
        n = tl.load(chain.scored.kept + i * 4 + 2)
        for start in range(0, n, BLOCK):
            ids, inside = filters.tokens(candidates, start, n, chain.filtered, BLOCK)
            p, q = _distributions(chain, i, ids, inside)
            passing += tl.sum(tl.maximum(reached * p - q, 0.0), 0)
        of = passing + (1.0 - reached)
    return noise.uniform(chain.key, chain.position + i - 1, noise.BLOCK, i) * of < passing


@triton.jit  # type: ignore[untyped-decorator]
def _rest(chain: Sampled, row: tl.tensor, reached: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Sample from norm(max(reached p - q, 0)) of a row, or from p where rounding leaves nothing."""
    candidates = chain.scored.candidates + row.to(tl.int64) * chain.stride
    n = tl.load(chain.scored.kept + row * 4 + 2)
    most = tl.full((), float("-inf"), tl.float32)
    most_p = tl.full((), float("-inf"), tl.float32)
    token = tl.full((), 0, tl.int32)
    token_p = tl.full((), 0, tl.int32)
    for start in range(0, n, BLOCK):
        ids, inside = filters.tokens(candidates, start, n, chain.filtered, BLOCK)
        p, q = _distributions(chain, row, ids, inside)
        rest = reached * p - q
        extra = noise.gumbel(chain.key, chain.position + row, noise.RESIDUAL, ids)
        noisy = tl.where(rest > 0.0, tl.log(tl.where(rest > 0.0, rest, 1.0)) + extra, float("-inf"))
        most, token = filters.better(most, token, noisy, ids)
        noisy = tl.where(p > 0.0, tl.log(tl.where(p > 0.0, p, 1.0)) + extra, float("-inf"))
        most_p, token_p = filters.better(most_p, token_p, noisy, ids)
    return tl.where(most == float("-inf"), token_p, token)


@triton.jit(do_not_specialize=["vocab"], do_not_specialize_on_alignment=["chosen"])  # type: ignore[untyped-decorator]
def _judge(
    scored: Scored,
    draft: Scored,
    state: VerifyState,
    chosen: tl.tensor,
    vocab: tl.tensor,
    stride_scores: tl.tensor,
    stride_draft: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    end = tl.load(state.drafted)
    # The row after the last draft token has its own choice, the step's token if all are accepted.
    if row < end:
        key, position = tl.load(state.seed), tl.load(state.length) + 1
        filtered = tl.load(state.integers + _FILTERED) != 0
        chain = Sampled(scored, stride_scores, draft, stride_draft, key, position, filtered)
        reached = tl.full((), 1.0, tl.float32)
        mine = tl.full((), 1.0, tl.float32)
        longer = tl.full((), 0, tl.int32)
        for node in range(1, end + 1):
            i = tl.cast(node, tl.int32)
            token = tl.load(state.fed + i)
            inside = (token >= 0) & (token < vocab)
            p, q = _distributions(chain, i - 1, token, inside)
            reached = tl.where(q > 0.0, tl.minimum(reached * p / tl.where(q > 0.0, q, 1.0), 1.0), 0.0)
            mine = tl.where(i == row, reached, mine)
            if (i > row) & (longer == 0):
                longer = _passes(chain, i, end, reached, BLOCK).to(tl.int32)
        if longer != 0:
            tl.store(chosen + row, tl.load(state.fed + row + 1))
        else:
            last = row == 0
            if row > 0:
                last = _passes(chain, row, end, mine, BLOCK)
            if last:
                tl.store(chosen + row, _rest(chain, row, mine, BLOCK))


def judge_block(scored: Scored, state: VerifyState, rows: int, chosen: Tensor, draft: Scored) -> None:
    """Judge a sampled chain as a whole, in the rows of a verify pass; sampling must not be greedy.

    A row takes the draft token after it if a longer prefix passes, so that `commit` finds the longest. The row of the
    last accepted token has a sample of the residual, or its own choice after the whole chain.

    Args:
        scored: output of `process` for rows 0 .. `rows` - 1.
        chosen: int32, `rows` of them written.
        draft: output of `process` and `choose` for the distributions of fed[1], ...
    """
    check(scored, state, rows, chosen)
    _judge[(rows,)](
        scored,
        draft,
        state,
        chosen,
        state.vocab,
        scored.strides.scores,
        draft.strides.scores,
        BLOCK=BLOCK,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
