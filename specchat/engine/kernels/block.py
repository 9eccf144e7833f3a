"""Block verification of a sampled chain on the device (Sun et al. 2024); decoding/block.py has the formulas.

One program a row, after `choose.check` of the same rows. Each program walks the chain from its start, because a row's
token depends on earlier rows and on whether a longer prefix passes. Programs share no data.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import filters, noise
from specchat.engine.kernels.choose import check
from specchat.engine.kernels.verify_state import BLOCK, FILTERED, Scored, VerifyState

WARPS = 8

_FILTERED = tl.constexpr(FILTERED)


@triton.jit  # type: ignore[untyped-decorator]
def _laws(
    row: tl.tensor,
    ids: tl.tensor,
    inside: tl.tensor,
    scores: tl.tensor,
    kept: tl.tensor,
    norm: tl.tensor,
    draft_scores: tl.tensor,
    draft_kept: tl.tensor,
    draft_norm: tl.tensor,
    stride_scores: tl.tensor,
    stride_draft: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """Probabilities float32 of `ids` in a row of the target, and in the draft distribution of the token after it."""
    scores += row.to(tl.int64) * stride_scores
    draft_scores += row.to(tl.int64) * stride_draft
    kept += row * 3
    draft_kept += row * 3
    cut, last, top, mass = tl.load(kept), tl.load(kept + 1), tl.load(norm + row * 2), tl.load(norm + row * 2 + 1)
    p = filters.probability(scores, cut, last, top, mass, ids, inside)
    cut, last = tl.load(draft_kept), tl.load(draft_kept + 1)
    top, mass = tl.load(draft_norm + row * 2), tl.load(draft_norm + row * 2 + 1)
    return p, filters.probability(draft_scores, cut, last, top, mass, ids, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _passes(
    i: tl.tensor,
    end: tl.tensor,
    reached: tl.tensor,
    key: tl.tensor,
    position: tl.tensor,
    filtered: tl.tensor,
    candidates: tl.tensor,
    scores: tl.tensor,
    kept: tl.tensor,
    norm: tl.tensor,
    draft_scores: tl.tensor,
    draft_kept: tl.tensor,
    draft_norm: tl.tensor,
    stride_scores: tl.tensor,
    stride_draft: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """True if the first `i` > 0 tokens pass; `reached` is their P and `position` that of the first."""
    passing = reached
    of = tl.full((), 1.0, tl.float32)
    if (i < end) & (reached < 1.0):
        passing = tl.full((), 0.0, tl.float32)
        candidates += i.to(tl.int64) * stride_scores
        n = tl.load(kept + i * 3 + 2)
        for start in range(0, n, BLOCK):
            ids, inside = filters.tokens(candidates, start, n, filtered, BLOCK)
            p, q = _laws(
                i, ids, inside, scores, kept, norm, draft_scores, draft_kept, draft_norm, stride_scores, stride_draft
            )
            passing += tl.sum(tl.maximum(reached * p - q, 0.0), 0)
        of = passing + (1.0 - reached)
    return noise.uniform(key, position + i - 1, noise.BLOCK, i) * of < passing


@triton.jit  # type: ignore[untyped-decorator]
def _rest(
    row: tl.tensor,
    reached: tl.tensor,
    key: tl.tensor,
    position: tl.tensor,
    filtered: tl.tensor,
    candidates: tl.tensor,
    scores: tl.tensor,
    kept: tl.tensor,
    norm: tl.tensor,
    draft_scores: tl.tensor,
    draft_kept: tl.tensor,
    draft_norm: tl.tensor,
    stride_scores: tl.tensor,
    stride_draft: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Sample from norm(max(reached p - q, 0)) of a row, or from p where rounding leaves nothing."""
    candidates += row.to(tl.int64) * stride_scores
    n = tl.load(kept + row * 3 + 2)
    most = tl.full((), float("-inf"), tl.float32)
    most_p = tl.full((), float("-inf"), tl.float32)
    token = tl.full((), 0, tl.int32)
    token_p = tl.full((), 0, tl.int32)
    for start in range(0, n, BLOCK):
        ids, inside = filters.tokens(candidates, start, n, filtered, BLOCK)
        p, q = _laws(
            row, ids, inside, scores, kept, norm, draft_scores, draft_kept, draft_norm, stride_scores, stride_draft
        )
        rest = reached * p - q
        extra = noise.gumbel(key, position + row, noise.RESIDUAL, ids)
        noisy = tl.where(rest > 0.0, tl.log(tl.where(rest > 0.0, rest, 1.0)) + extra, float("-inf"))
        most, token = filters.better(most, token, noisy, ids)
        noisy = tl.where(p > 0.0, tl.log(tl.where(p > 0.0, p, 1.0)) + extra, float("-inf"))
        most_p, token_p = filters.better(most_p, token_p, noisy, ids)
    return tl.where(most == float("-inf"), token_p, token)


@triton.jit(
    do_not_specialize=["vocab"],
    do_not_specialize_on_alignment=["kept", "norm", "draft_kept", "draft_norm", "chosen"],
)  # type: ignore[untyped-decorator]
def _judge(
    scores: tl.tensor,
    candidates: tl.tensor,
    kept: tl.tensor,
    norm: tl.tensor,
    draft_scores: tl.tensor,
    draft_kept: tl.tensor,
    draft_norm: tl.tensor,
    fed: tl.tensor,
    drafted: tl.tensor,
    length: tl.tensor,
    integers: tl.tensor,
    seed: tl.tensor,
    chosen: tl.tensor,
    vocab: tl.tensor,
    stride_scores: tl.tensor,
    stride_draft: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    end = tl.load(drafted)
    # The row after the last draft token has its own choice, the step's token if all are accepted.
    if row < end:
        key = tl.load(seed)
        position = tl.load(length) + 1
        filtered = tl.load(integers + _FILTERED) != 0
        reached = tl.full((), 1.0, tl.float32)
        mine = tl.full((), 1.0, tl.float32)
        longer = tl.full((), 0, tl.int32)
        for node in range(1, end + 1):
            i = tl.cast(node, tl.int32)
            token = tl.load(fed + i)
            inside = (token >= 0) & (token < vocab)
            p, q = _laws(
                i - 1, token, inside, scores, kept, norm,
                draft_scores, draft_kept, draft_norm, stride_scores, stride_draft,
            )  # fmt: skip
            reached = tl.where(q > 0.0, tl.minimum(reached * p / tl.where(q > 0.0, q, 1.0), 1.0), 0.0)
            mine = tl.where(i == row, reached, mine)
            if (i > row) & (longer == 0):
                passes = _passes(
                    i, end, reached, key, position, filtered, candidates, scores, kept, norm,
                    draft_scores, draft_kept, draft_norm, stride_scores, stride_draft, BLOCK,
                )  # fmt: skip
                longer = passes.to(tl.int32)
        if longer != 0:
            tl.store(chosen + row, tl.load(fed + row + 1))
        else:
            last = row == 0
            if row > 0:
                last = _passes(
                    row, end, mine, key, position, filtered, candidates, scores, kept, norm,
                    draft_scores, draft_kept, draft_norm, stride_scores, stride_draft, BLOCK,
                )  # fmt: skip
            if last:
                token = _rest(
                    row, mine, key, position, filtered, candidates, scores, kept, norm,
                    draft_scores, draft_kept, draft_norm, stride_scores, stride_draft, BLOCK,
                )  # fmt: skip
                tl.store(chosen + row, token)


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
        scored.scores,
        scored.candidates,
        scored.kept,
        scored.norm,
        draft.scores,
        draft.kept,
        draft.norm,
        state.fed,
        state.drafted,
        state.length,
        state.integers,
        state.seed,
        chosen,
        state.vocab,
        scored.scores.stride(0),
        draft.scores.stride(0),
        BLOCK=BLOCK,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
