"""One token a row: filters over the whole row, then argmax, keyed noise, or the ratio test.

The references are `Sampler` of decoding/sampler.py and `judge` of decoding/acceptance.py. Every row has its own program
and a fixed order of operations, so it cannot depend on the number of rows.
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import acceptance, filters, noise
from specchat.engine.kernels.verify_state import BLOCK, BY_BLOCKS, FILTERED, GREEDY, GROUP, RATIO, Scored, VerifyState

WARPS = 8

CHOOSE, CHECK, ONE_HOT, SAMPLED = range(4)
"""Modes of a launch: choose a draft token; choose the target's tokens; judge a draft that is no sample, or a sample."""
_CHOOSE, _CHECK, _SAMPLED = tl.constexpr(CHOOSE), tl.constexpr(CHECK), tl.constexpr(SAMPLED)
_GREEDY, _FILTERED, _RATIO = tl.constexpr(GREEDY), tl.constexpr(FILTERED), tl.constexpr(RATIO)
_BY_BLOCKS = tl.constexpr(BY_BLOCKS)


@triton.jit(
    # One program for every purpose: rounding of the filters must not depend on drafting.
    do_not_specialize=["purpose", "first_row", "vocab"],
    # Single numbers: a row of these may start anywhere without another compilation.
    do_not_specialize_on_alignment=["chosen", "sure", "kept", "norm", "draft_kept", "draft_norm"],
)  # type: ignore[untyped-decorator]
def _choose(
    scores: tl.tensor,
    best: tl.tensor,
    best_id: tl.tensor,
    total: tl.tensor,
    drawn: tl.tensor,
    drawn_id: tl.tensor,
    tops: tl.tensor,
    candidates: tl.tensor,
    kept: tl.tensor,
    norm: tl.tensor,
    draft_scores: tl.tensor,
    draft_kept: tl.tensor,
    draft_norm: tl.tensor,
    fed: tl.tensor,
    parents: tl.tensor,
    depth: tl.tensor,
    drafted: tl.tensor,
    length: tl.tensor,
    node: tl.tensor,
    reals: tl.tensor,
    integers: tl.tensor,
    seed: tl.tensor,
    sure: tl.tensor,
    chosen: tl.tensor,
    purpose: tl.tensor,
    first_row: tl.tensor,
    vocab: tl.tensor,
    stride_scores: tl.tensor,
    stride_blocks: tl.tensor,
    stride_tops: tl.tensor,
    stride_draft: tl.tensor,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    NODES: tl.constexpr,
) -> None:
    before = tl.load(node)
    row = before + tl.program_id(0)
    at = first_row + row
    scores += row.to(tl.int64) * stride_scores
    candidates += row.to(tl.int64) * stride_scores
    blocks = tl.cdiv(vocab, BLOCK)
    b = tl.arange(0, BLOCKS)
    place = row * stride_blocks + b
    bests = tl.load(best + place, mask=b < blocks, other=float("-inf"))
    top = tl.max(bests, 0)
    token = tl.min(tl.where(bests == top, tl.load(best_id + place, mask=b < blocks, other=0), 2147483647), 0)
    totals = tl.load(total + place, mask=b < blocks, other=0.0)
    base = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(totals * tl.exp(bests - base), 0)
    # Without an allowed token all scores are equal, and the first token is the lowest.
    if (tl.load(integers + _GREEDY) == 0) & (top > float("-inf")):
        key = tl.load(seed)
        position = tl.load(length) + 1 + tl.load(depth + at)
        filtered = tl.load(integers + _FILTERED) != 0
        n = vocab
        cut = tl.full((), filters.LOWEST, tl.int32)
        last = vocab
        if filtered:
            n, cut, last, mass = filters.cut(
                scores,
                best + row * stride_blocks,
                tops + row * stride_tops,
                candidates,
                reals,
                integers,
                top,
                mass,
                vocab,
                BLOCK,
                GROUPS,
                GROUP,
            )
            most = tl.full((), float("-inf"), tl.float32)
            stream = noise.drafting(before, tl.load(integers + _BY_BLOCKS))
            for start in range(0, n, BLOCK):
                ids, inside = filters.tokens(candidates, start, n, True, BLOCK)
                s = tl.load(scores + ids, mask=inside, other=float("-inf"))
                noisy = s + noise.gumbel(key, position, stream, ids)
                noisy = tl.where(filters.keeps(s, ids, cut, last), noisy, float("-inf"))
                most, token = filters.better(most, token, noisy, ids)
        else:
            noisy = tl.load(drawn + place, mask=b < blocks, other=float("-inf"))
            ids = tl.load(drawn_id + place, mask=b < blocks, other=0)
            token = tl.min(tl.where(noisy == tl.max(noisy, 0), ids, 2147483647), 0)
        tl.store(kept + row * 3, cut)
        tl.store(kept + row * 3 + 1, last)
        tl.store(kept + row * 3 + 2, n)
        tl.store(norm + row * 2, top)
        tl.store(norm + row * 2 + 1, mass)
        if (purpose > _CHECK) & (tl.load(integers + _RATIO) != 0):
            end = tl.load(drafted) + 1
            node_ids = tl.arange(0, NODES)
            above = tl.load(parents + node_ids, mask=node_ids < end, other=-1)
            children = tl.sum((above == at).to(tl.int32) << node_ids, 0)
            if children != 0:
                token = acceptance.ratio(
                    scores,
                    candidates,
                    cut,
                    last,
                    top,
                    mass,
                    draft_scores + at.to(tl.int64) * stride_draft,
                    draft_kept + at * 3,
                    draft_norm + at * 2,
                    purpose == _SAMPLED,
                    fed,
                    children,
                    at + 1,
                    end,
                    key,
                    position,
                    filtered,
                    n,
                    vocab,
                    BLOCK,
                )
    if purpose == _CHOOSE:
        tl.store(sure + at, tl.exp(tl.load(scores + token) - base) / tl.maximum(mass, 1e-30))
    tl.store(chosen + row, token)


def choose(scored: Scored, state: VerifyState, first_row: int, rows: int, chosen: Tensor) -> None:
    """Choose a token for each row: the most probable one, or a sample with the noise of its position.

    `scored` receives the row's distribution after top-k, top-p and min-p: p(token) = exp(score - norm[0]) / norm[1] if
    `filters.keeps(score, token, kept[0], kept[1])`, else 0. All kept tokens are among its first kept[2] candidates, or
    tokens if nothing is filtered. A row without an allowed token gives token 0.

    Args:
        scored: output of `process` for the same rows.
        chosen: int32, `rows` of them written from `state.node` on. `state.sure` receives their probabilities.
    """
    _launch(scored, state, first_row, rows, chosen, scored, CHOOSE)


def check(scored: Scored, state: VerifyState, rows: int, chosen: Tensor) -> None:
    """Choose the target's tokens for the rows of a verify pass, without judging a draft; keeps `state.sure`."""
    _launch(scored, state, 0, rows, chosen, scored, CHECK)


def judge(scored: Scored, state: VerifyState, rows: int, chosen: Tensor, draft: Scored | None) -> None:
    """Choose tokens for the rows of a verify pass, from row 0 on, and judge draft tokens by the acceptance set.

    coupled: a draft token is accepted if the row chooses it (Daliri, Musco, Suresh 2024). ratio: a row takes the draft
    token after it with probability min(1, p/q), otherwise a sample of norm(max(p - q, 0)) (Leviathan et al. 2023). It
    tries several draft tokens in the order of their nodes, each against the residual of the rejected ones (SpecInfer:
    Miao et al. 2024).

    Args:
        draft: output of `process` and `choose` for the distributions of a chain's fed[1], ...; None for a draft that is
            no sample, such as a tree: its tokens count as certain.
    """
    _launch(scored, state, 0, rows, chosen, draft or scored, SAMPLED if draft else ONE_HOT)


def _launch(
    scored: Scored, state: VerifyState, first_row: int, rows: int, chosen: Tensor, draft: Scored, purpose: int
) -> None:
    """Launch `_choose`, which reads `draft` only if the purpose is SAMPLED."""
    _choose[(rows,)](
        scored.scores,
        scored.best,
        scored.best_id,
        scored.total,
        scored.drawn,
        scored.drawn_id,
        scored.tops,
        scored.candidates,
        scored.kept,
        scored.norm,
        draft.scores,
        draft.kept,
        draft.norm,
        state.fed,
        state.parents,
        state.depth,
        state.drafted,
        state.length,
        state.node,
        state.reals,
        state.integers,
        state.seed,
        state.sure,
        chosen,
        purpose,
        first_row,
        state.vocab,
        scored.scores.stride(0),
        scored.best.stride(0),
        scored.tops.stride(0),
        draft.scores.stride(0),
        BLOCK=BLOCK,
        BLOCKS=triton.next_power_of_2(triton.cdiv(state.vocab, BLOCK)),
        GROUPS=triton.next_power_of_2(triton.cdiv(state.vocab, GROUP)),
        GROUP=GROUP,
        NODES=triton.next_power_of_2(state.parents.shape[0]),
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
