"""Which drafted tokens stay.

coupled: the target draws its own sample with keyed noise, the draft has no say in it (Daliri, Musco, Suresh 2024).
ratio: a drafted token stays with probability min(1, p/q) (Leviathan et al. 2023, Chen et al. 2023).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specchat.engine.api import Acceptance
from specchat.engine.decoding import noise
from specchat.engine.decoding.sampler import History, Sampler, gumbel_argmax


@dataclass
class Draft:
    """A chain of proposed tokens.

    `q` are the distributions float64 [vocab] that each token was drawn from, empty when the draft is deterministic or
    another test judges it; `confidence` is the probability of each token, empty where there is none to tell.
    """

    tokens: list[int] = field(default_factory=list)
    q: list[Tensor] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """`accepted` leading draft tokens stay, `token` follows them; `tested` were judged to find out."""

    accepted: int
    tested: int
    token: int


def judge(
    logits: Tensor, draft: Draft, position: int, sampler: Sampler, history: History, acceptance: Acceptance
) -> Verdict:
    """Judge a draft by the target's logits.

    Args:
        logits: float32 [len(draft.tokens) + 1, vocab], row i given the draft up to token i - 1.
        position: absolute position of the first drafted token.
        history: counts the committed tokens; returned as it was.
    """
    if sampler.plain_argmax:
        return _greedy(logits, draft)
    by_ratio = acceptance == "ratio" and not sampler.greedy
    pushed: list[int] = []
    try:
        for i, drafted in enumerate(draft.tokens):
            if by_ratio:
                token = _ratio(logits[i], draft, i, position + i, sampler, history)
            else:
                token = sampler.choose(logits[i], position + i, history)
            if token != drafted:
                return Verdict(i, i + 1, token)
            history.push(drafted)
            pushed.append(drafted)
        n = len(draft.tokens)
        return Verdict(n, n, sampler.choose(logits[n], position + n, history))
    finally:
        for token in pushed:
            history.pop(token)


def _greedy(logits: Tensor, draft: Draft) -> Verdict:
    choices = logits.argmax(-1).tolist()
    for i, drafted in enumerate(draft.tokens):
        if choices[i] != drafted:
            return Verdict(i, i + 1, choices[i])
    return Verdict(len(draft.tokens), len(draft.tokens), choices[-1])


def _ratio(row: Tensor, draft: Draft, index: int, position: int, sampler: Sampler, history: History) -> int:
    """The drafted token with probability min(1, p/q), otherwise a sample of norm(max(p - q, 0))."""
    p = sampler.probabilities(sampler.scores(row, history))
    drafted = draft.tokens[index]
    if draft.q:
        q = draft.q[index]
    else:
        q = torch.zeros_like(p)
        q[drafted] = 1.0
    # u < p/q as u*q < p: a token outside q's support (q = 0) cannot have been drawn and is refused below.
    u = noise.uniform(sampler.sampling.seed, position, noise.ACCEPT)
    if q[drafted] > 0 and u * q[drafted] < p[drafted]:
        return drafted
    residual = (p - q).clamp_min(0.0)
    residual[drafted] = 0.0
    if residual.sum() <= 0:
        residual = p
    return gumbel_argmax(residual.log().numpy(), sampler.sampling.seed, position, noise.RESIDUAL)
