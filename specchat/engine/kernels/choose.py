"""One token a row: filters over the whole row, then argmax, keyed noise, or the ratio test.

The references are `Sampler` of decoding/sampler.py and `judge` of decoding/acceptance.py. Every row has its own program
and a fixed order of operations, so it cannot depend on the number of rows.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import acceptance, filters, noise
from specchat.engine.kernels.verify_state import (
    BLOCK,
    BY_BLOCKS,
    FILTERED,
    GREEDY,
    GROUP,
    RATIO,
    Scored,
    StridedScores,
    VerifyState,
)

WARPS = 8
REGISTERS = 255
"""All that a thread can have: left to itself the assembler stops at 128 for some vocabularies, and spills."""

CHOOSE, CHECK, ONE_HOT, SAMPLED = range(4)
"""Modes of a launch: choose a draft token; choose the target's tokens; judge a draft that is no sample, or a sample."""
_CHOOSE, _CHECK, _SAMPLED = tl.constexpr(CHOOSE), tl.constexpr(CHECK), tl.constexpr(SAMPLED)
_GREEDY, _FILTERED, _RATIO = tl.constexpr(GREEDY), tl.constexpr(FILTERED), tl.constexpr(RATIO)
_BY_BLOCKS = tl.constexpr(BY_BLOCKS)


class ChoiceShape(NamedTuple):
    """Constants of a program: blocks of a vocabulary and nodes of a tree, both rounded up to powers of 2."""

    vocab: filters.VocabularyShape
    blocks: int
    nodes: int


@triton.jit(
    # One program for every purpose: rounding of the filters must not depend on drafting.
    do_not_specialize=["purpose", "first_row", "vocab"],
    # A row of these may start anywhere without another compilation.
    do_not_specialize_on_alignment=["chosen"],
)  # type: ignore[untyped-decorator]
def _choose(
    target: StridedScores,
    draft: StridedScores,
    state: VerifyState,
    chosen: tl.tensor,
    purpose: tl.tensor,
    first_row: tl.tensor,
    vocab: tl.tensor,
    shape: tl.constexpr,
) -> None:
    BLOCK: tl.constexpr = shape.vocab.block
    scored, strides = target.rows, target.strides
    before = tl.load(state.node)
    row = before + tl.program_id(0)
    at = first_row + row
    scores = scored.scores + row.to(tl.int64) * strides.scores
    candidates = scored.candidates + row.to(tl.int64) * strides.scores
    blocks = tl.cdiv(vocab, BLOCK)
    b = tl.arange(0, shape.blocks)
    of_blocks = row * strides.blocks + b
    top, token, base, mass = _best(scored, of_blocks, b < blocks)
    # Without an allowed token all scores are equal, and the first token is the lowest.
    if (tl.load(state.integers + _GREEDY) == 0) & (top > float("-inf")):
        key = tl.load(state.seed)
        position = tl.load(state.length) + 1 + tl.load(state.depth + at)
        filtered = tl.load(state.integers + _FILTERED) != 0
        n = vocab
        cut = tl.full((), filters.LOWEST, tl.int32)
        last = vocab
        if filtered:
            of_row = filters.RowScores(
                scores, scored.best + row * strides.blocks, scored.tops + row * strides.tops, candidates
            )
            n, cut, last, mass = filters.cut(of_row, state, top, mass, vocab, shape.vocab)
            stream = noise.drafting(before, tl.load(state.integers + _BY_BLOCKS))
            token = _noisiest(
                token, filters.Distribution(scores, cut, last, top, mass), candidates, n, key, position, stream, BLOCK
            )
        else:
            noisy = tl.load(scored.drawn + of_blocks, mask=b < blocks, other=float("-inf"))
            ids = tl.load(scored.drawn_id + of_blocks, mask=b < blocks, other=0)
            token = tl.min(tl.where(noisy == tl.max(noisy, 0), ids, 2147483647), 0)
        tl.store(scored.kept + row * 4, cut)
        tl.store(scored.kept + row * 4 + 1, last)
        tl.store(scored.kept + row * 4 + 2, n)
        tl.store(scored.norm + row * 4, top)
        tl.store(scored.norm + row * 4 + 1, mass)
        if (purpose > _CHECK) & (tl.load(state.integers + _RATIO) != 0):
            end = tl.load(state.drafted) + 1
            node_ids = tl.arange(0, shape.nodes)
            above = tl.load(state.parents + node_ids, mask=node_ids < end, other=-1)
            set = tl.sum((above == at).to(tl.int32) << node_ids, 0)
            if set != 0:
                sampled = purpose == _SAMPLED
                # Without a sample `draft` is the row itself, which a thread of this program is writing.
                token = acceptance.ratio(
                    filters.Distribution(scores, cut, last, top, mass),
                    filters.distribution(draft.rows, draft.strides.scores, at, sampled),
                    filters.Candidates(candidates, n, filtered),
                    acceptance.Children(state.fed, set, at + 1, end, sampled, key, position),
                    vocab,
                    BLOCK,
                )
    if purpose == _CHOOSE:
        tl.store(state.sure + at, tl.exp(tl.load(scores + token) - base) / tl.maximum(mass, 1e-30))
    tl.store(chosen + row, token)


@triton.jit  # type: ignore[untyped-decorator]
def _best(scored: Scored, of_blocks: tl.tensor, inside: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return a row's largest score, its first token, that score or 0 without an allowed token, and the row's mass."""
    bests = tl.load(scored.best + of_blocks, mask=inside, other=float("-inf"))
    top = tl.max(bests, 0)
    token = tl.min(tl.where(bests == top, tl.load(scored.best_id + of_blocks, mask=inside, other=0), 2147483647), 0)
    totals = tl.load(scored.total + of_blocks, mask=inside, other=0.0)
    base = tl.where(top == float("-inf"), 0.0, top)
    return top, token, base, tl.sum(totals * tl.exp(bests - base), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _noisiest(
    token: tl.tensor,
    row: filters.Distribution,
    candidates: tl.tensor,
    n: tl.tensor,
    key: tl.tensor,
    position: tl.tensor,
    stream: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Token with the largest sum of score and noise among the first n candidates that are kept; `token` without one."""
    most = tl.full((), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        ids, inside = filters.tokens(candidates, start, n, True, BLOCK)
        s = tl.load(row.scores + ids, mask=inside, other=float("-inf"))
        noisy = s + noise.gumbel(key, position, stream, ids)
        noisy = tl.where(filters.keeps(s, ids, row.cut, row.last), noisy, float("-inf"))
        most, token = filters.better(most, token, noisy, ids)
    return token


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
        scored.strided,
        draft.strided,
        state,
        chosen,
        purpose,
        first_row,
        state.vocab,
        ChoiceShape(
            filters.VocabularyShape(BLOCK, triton.next_power_of_2(triton.cdiv(state.vocab, GROUP)), GROUP),
            triton.next_power_of_2(triton.cdiv(state.vocab, BLOCK)),
            triton.next_power_of_2(state.parents.shape[0]),
        ),
        num_warps=WARPS,
        maxnreg=REGISTERS,
        enable_fp_fusion=True,
    )
