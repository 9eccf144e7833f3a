"""Acceptance tests of drafts: coupled, ratio, block.

The target walks the draft tree from the pending token. If its choice at a node is among the drafted children, that
child is accepted and the walk goes on there (SpecInfer, Miao et al. 2024).

coupled: the target draws its own sample with keyed noise, independent of the draft (Daliri, Musco, Suresh 2024).
ratio: a drafted token is accepted with probability min(1, p/q) (Leviathan et al. 2023, Chen et al. 2023). Siblings are
tried in turn, each against the residual of p after the ones before.
block: a drawn chain is judged as a whole (block.py). Tokens not drawn have q = 1: ratio is equivalent and judges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler, gumbel_argmax
from specchat.engine.protocol.options import Acceptance


def judge_block(
    logits: Tensor, tokens: Sequence[int], q: Sequence[Tensor], position: int, sampler: Sampler, history: History
) -> tuple[int, int]:
    """Judge a chain of at least one token, with a sampler that is not greedy.

    The key of a uniform includes the index in the block, so that none judges two tokens at one position.

    Args:
        logits: float32 [len(tokens) + 1, vocab], row i after `tokens[i - 1]`.
        q: float64 [vocab] each, the distributions the tokens were drawn from.
        position: absolute position of the first token.
        history: counts the committed tokens; unchanged on return.

    Returns:
        number of accepted tokens, and the token after them.
    """
    seed = sampler.sampling.seed
    p_of: list[Tensor] = []
    reached = [1.0]
    try:
        for row, token, drawn_from in zip(logits, tokens, q, strict=False):
            p = sampler.probabilities(sampler.scores(row, history))
            share = float(drawn_from[token])
            reached.append(min(reached[-1] * float(p[token]) / share, 1.0) if share > 0 else 0.0)
            history.push(token)
            p_of.append(p)
        for length in range(len(tokens), 0, -1):
            passing, of = chance(length, reached, p_of, q)
            if noise.uniform(seed, position + length - 1, noise.BLOCK, length) * of < passing:
                break
        else:
            length = 0
        if length == len(tokens):
            return length, sampler.choose(logits[length], position + length, history)
    finally:
        for token in tokens[: len(p_of)]:
            history.pop(token)
    rest = _rest(reached[length], p_of[length], q[length])
    if not rest.any():
        rest = p_of[length]
    return length, gumbel_argmax(rest.log().numpy(), seed, position + length, noise.RESIDUAL)


def chance(length: int, reached: Sequence[float], p_of: Sequence[Tensor], q: Sequence[Tensor]) -> tuple[float, float]:
    """Return numerator and denominator of h for `length` > 0; `reached` are P_0, ... and `p_of` are p_1, ..."""
    left = 1.0 - reached[length]
    if left <= 0 or length == len(q):
        return reached[length], 1.0
    rest = float(_rest(reached[length], p_of[length], q[length]).sum())
    return rest, rest + left


def _rest(reached: float, p: Tensor, drawn_from: Tensor) -> Tensor:
    return (reached * p - drawn_from).clamp_min(0.0)


@dataclass(frozen=True)
class AcceptedPath:
    """Outcome: accepted nodes `path`, the `token` after them, and positions `tested` up to the first rejected one."""

    path: tuple[int, ...]
    tested: int
    token: int


def judge(
    logits: Tensor, draft: Draft, position: int, sampler: Sampler, history: History, acceptance: Acceptance
) -> AcceptedPath:
    """Judge a draft by the target's logits.

    Args:
        logits: float32 [len(draft.tokens) + 1, vocab], row i after node i.
        position: absolute position of the token after the pending one.
        history: counts the committed tokens; unchanged on return.
    """
    if acceptance == "block" and draft.q and not sampler.greedy:
        length, token = judge_block(logits, draft.tokens, draft.q, position, sampler, history)
        return AcceptedPath(tuple(range(1, length + 1)), min(length + 1, len(draft.tokens)), token)
    by_ratio = acceptance != "coupled" and not sampler.greedy
    constraint = history.constraint
    choices = None if by_ratio else sampler.choices(logits, [position + depth for depth in draft.depths()])
    if choices is not None and not draft.parents:
        # A chain with all choices known needs no walk. One among all tokens is the one among those allowed, if it is.
        accepted = next((i for i, token in enumerate(draft.tokens) if token != choices[i]), len(draft.tokens))
        if constraint is None or constraint.prefix(choices[: accepted + 1]) == accepted + 1:
            return AcceptedPath(tuple(range(1, accepted + 1)), min(accepted + 1, len(draft.tokens)), choices[accepted])
    children, node = draft.children(), 0
    path: list[int] = []
    try:
        while True:
            next_position = position + len(path)
            if choices is not None and (constraint is None or constraint.prefix(choices[node : node + 1])):
                token = choices[node]
            elif by_ratio and children[node]:
                token = _ratio(logits[node], draft, children[node], next_position, sampler, history)
            else:
                token = sampler.choose(logits[node], next_position, history)
            found = next((child for child in children[node] if draft.tokens[child - 1] == token), None)
            if found is None:
                return AcceptedPath(tuple(path), len(path) + bool(children[node]), token)
            history.push(token)
            path.append(found)
            node = found
    finally:
        for found in path:
            history.pop(draft.tokens[found - 1])


def _ratio(
    row: Tensor, draft: Draft, candidates: Sequence[int], position: int, sampler: Sampler, history: History
) -> int:
    """Return the first accepted candidate, or a sample from the residual of p.

    A candidate passes with probability min(1, p/q), p being the residual so far. A rejection leaves max(p - q, 0)
    without the candidate, so that no later round returns it.
    """
    p = sampler.probabilities(sampler.scores(row, history))
    seed = sampler.sampling.seed
    left, mass = p, 1.0
    for index, candidate in enumerate(candidates):
        drafted = draft.tokens[candidate - 1]
        if draft.q:
            q = draft.q[candidate - 1]
        else:
            q = torch.zeros_like(p)
            q[drafted] = 1.0
        # u < p/q written as u*q < p: a token with q = 0 cannot have been drawn and is rejected below.
        u = noise.uniform(seed, position, noise.ACCEPT, index)
        if q[drafted] > 0 and u * (q[drafted] * mass) < left[drafted]:
            return drafted
        left = (left - q * mass).clamp_min(0.0)
        left[drafted] = 0.0
        mass = float(left.sum())
        if mass <= 0:
            left, mass = p, 1.0
            break
    return gumbel_argmax(left.log().numpy(), seed, position, noise.RESIDUAL)
