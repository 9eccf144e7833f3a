"""Choice of the target's next token: logits processors, then argmax or Gumbel-max with keyed noise.

Order: constraint, repetition, presence and frequency penalties, logit bias, temperature, top-k, top-p, min-p.
Losslessness is relative to the distribution after all of them. A constraint comes first: the others see only tokens
that it allows.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu import compiled
from specchat.engine.decoding import noise
from specchat.engine.decoding.reply_rules import Allowed, Constraint
from specchat.engine.errors import ModelError
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.picture_ids import of_text

GROUPED = 64
"""Scores of a group, by whose largest ones those of the top k are found."""


class History:
    """State of a reply that scores depend on: tokens of the prompt, counts of generated ones, and a constraint."""

    def __init__(self, prompt: Sequence[int], constraint: Constraint | None = None, begun: int = 0) -> None:
        self.prompt = frozenset(of_text(prompt))
        self.prompt_ids = torch.tensor(list(self.prompt), dtype=torch.int64)
        """The same, in any order, int64."""
        self.generated = Counter(prompt[len(prompt) - begun :])
        self.constraint = constraint

    def push(self, token: int) -> None:
        """Count a token of the reply, or a drafted one until popped."""
        self.generated[token] += 1
        if self.constraint is not None:
            self.constraint.push(token)

    def pop(self, token: int) -> None:
        """Undo one `push` of `token`, the last one or one of the last if all are undone."""
        self.generated[token] -= 1
        if not self.generated[token]:
            del self.generated[token]
        if self.constraint is not None:
            self.constraint.pop()


class Uncounted(History):
    """History for a sampler without penalties or constraint: it counts nothing."""

    def push(self, token: int) -> None:
        """Do nothing."""

    def pop(self, token: int) -> None:
        """Do nothing."""


class Sampler:
    """Stateless sampler of tokens from rows of logits, by fixed options."""

    def __init__(self, sampling: Sampling, constrained: bool = False) -> None:
        """Create a sampler; `constrained` if histories have a constraint."""
        self.sampling, self.constrained = sampling, constrained
        self.greedy = sampling.greedy
        self.penalised = (
            sampling.repetition_penalty != 1.0 or sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
        )
        biases = {token: bias for token, bias in sampling.logit_bias.items() if token >= 0}
        self._biased, self._bias = (
            torch.tensor([*biases], dtype=torch.int64),
            torch.tensor([*biases.values()], dtype=torch.float32),
        )
        _fast()  # compiled now, not within a step
        as_is = not self.penalised and not sampling.logit_bias
        self.plain_argmax = self.greedy and as_is and not constrained
        cut = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
        self.temperature_alone = as_is and (self.greedy or not cut)
        """True if scores are just logits over the temperature, or just logits when greedy, of the allowed tokens."""

    def history(self, prompt: Sequence[int], constraint: Constraint | None = None, begun: int = 0) -> History:
        """Create the history of a reply to `prompt`, whose last `begun` tokens are the reply's."""
        counted = self.penalised or constraint is not None
        return History(prompt, constraint, begun) if counted else Uncounted(())

    def choose(self, logits: Tensor, position: int, history: History) -> int:
        """Choose the token at absolute `position` from raw logits float32 [vocab].

        Greedy takes the lowest id among equals. Sampling is argmax(log p + Gumbel(seed, position, token)), a fixed
        function of the logits: the choice does not depend on the draft.
        """
        return self.pick(self.scores(logits, history), position)

    def pick(self, scores: Tensor, position: int, stream: int = noise.TOKEN) -> int:
        """Choose the token at absolute `position` from processed `scores` float32 [vocab]."""
        values = scores.numpy()
        if self.greedy:
            return int(values.argmax())
        return gumbel_argmax(values, self.sampling.seed, position, stream)

    def choices(self, logits: Tensor, positions: Sequence[int]) -> list[int] | None:
        """Choose from each row of logits float32 [rows, vocab] among all tokens, as `choose` does, in one call.

        None if choices depend on counts, or rows need separate processing.
        """
        if not self.temperature_alone:
            return None
        if self.greedy:
            likeliest: list[int] = logits.numpy().argmax(-1).tolist()
            return likeliest
        fast = _fast()
        if fast is None:
            return None
        tokens = np.empty(len(positions), np.int64)
        row = np.empty(logits.shape[1], np.float32)
        seed = np.uint64(self.sampling.seed & noise.WORD)
        fast.draw_each(logits.numpy(), self.sampling.temperature, seed, np.array(positions, np.int64), row, tokens)
        return tokens.tolist() if tokens.min() >= 0 else None

    def probability(self, scores: Tensor, token: int) -> float:
        """Return the probability of `token` by processed `scores` float32 [vocab]."""
        fast = _fast()
        return fast.probability(scores.numpy(), token) if fast is not None else float(scores.softmax(0)[token])

    def perturbed(self, scores: Tensor, position: int) -> Tensor:
        """Return processed `scores` plus the noise of `position`, float32 [..., vocab]; `pick` takes the largest."""
        if self.greedy:
            return scores
        extra = noise.gumbel(self.sampling.seed, position, noise.TOKEN, np.arange(scores.shape[-1]))
        return scores + torch.from_numpy(extra).float()

    def lead(self, scores: Tensor, position: int) -> tuple[int, float]:
        """Return the token that `pick` takes, and its lead over the next one, noise included."""
        values = scores.numpy()
        if self.greedy:
            return _lead(values)
        tokens = np.flatnonzero(values > -np.inf)
        token, lead = _lead(values[tokens] + noise.gumbel(self.sampling.seed, position, noise.TOKEN, tokens))
        return int(tokens[token]), lead

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return the distribution float64 [vocab] that `pick` draws from; one-hot when greedy."""
        if self.greedy:
            return torch.zeros(scores.shape, dtype=torch.float64).index_fill_(0, scores.argmax(), 1.0)
        return scores.double().softmax(-1)

    def scores(self, logits: Tensor, history: History) -> Tensor:
        """Return logits after all processors, float32 [vocab]; excluded tokens are -inf. `logits` is unchanged."""
        if self.plain_argmax:
            return logits
        s = self.sampling
        scores = logits
        if history.constraint is not None and (allowed := history.constraint.allowed(len(logits))) is not None:
            scores = _masked(logits, allowed)
        if self.penalised or s.logit_bias:
            scores = scores.clone()
            self._penalise(scores, history)
        if self.greedy:
            return scores
        scores = scores / s.temperature
        if 0 < s.top_k < scores.shape[0]:
            scores = _at_least(scores, _largest(scores, s.top_k))
        if s.top_p < 1.0:
            scores = _nucleus(scores, s.top_p)
        if s.min_p > 0.0:
            scores = _at_least(scores, float(scores.max() + float(np.log(s.min_p))))
        return scores

    def _penalise(self, scores: Tensor, history: History) -> None:
        s = self.sampling
        if s.repetition_penalty != 1.0:
            others = torch.tensor([t for t in history.generated if t not in history.prompt], dtype=torch.int64)
            for seen in (history.prompt_ids, others):
                values = scores[seen]
                scores[seen] = torch.where(values > 0, values / s.repetition_penalty, values * s.repetition_penalty)
        if history.generated and (s.presence_penalty or s.frequency_penalty):
            tokens, numbers = zip(*history.generated.items(), strict=True)
            counts = torch.tensor(numbers, dtype=torch.float32)
            scores[torch.tensor(tokens)] -= s.presence_penalty + s.frequency_penalty * counts
        if s.logit_bias:
            within = self._biased < len(scores)
            scores[self._biased[within]] += self._bias[within]


class _Fast(NamedTuple):
    """Compiled functions of `cpu/choice.py`."""

    draw: Callable[[NDArray[Any], int, int, int], int]
    probability: Callable[[NDArray[np.float32], int], float]
    draw_each: Callable[..., None]
    mask: Callable[..., bool]


@cache
def _fast() -> _Fast | None:
    if compiled.unavailable(compiled.CHOICE):
        return None
    choice = import_module(compiled.CHOICE)
    return _Fast(choice.draw, choice.probability, choice.draw_each, choice.mask)


def gumbel_argmax(scores: NDArray[np.floating[Any]], seed: int, position: int, stream: int) -> int:
    """Return the argmax of `scores`, log-probabilities up to a constant, plus noise; -inf is never taken.

    Raises:
        ModelError: all scores are -inf or NaN.
    """
    fast = _fast()
    token = (fast.draw if fast is not None else _draw)(scores, seed & noise.WORD, position, stream)
    if token < 0:
        raise ModelError("A model gives scores that are no numbers. Its weights or config.json are damaged.")
    return token


def _draw(scores: NDArray[np.floating[Any]], seed: int, position: int, stream: int) -> int:
    """Numpy version of `draw` in `cpu/choice.py`."""
    tokens = np.flatnonzero(scores > -np.inf)
    if not len(tokens):
        return -1
    perturbed = scores[tokens].astype(np.float64) + noise.gumbel(seed, position, stream, tokens)
    return int(tokens[perturbed.argmax()])


def _masked(logits: Tensor, allowed: Allowed) -> Tensor:
    """Return `logits` float32 [vocab] with -inf for tokens that are not allowed.

    All are allowed if that leaves nothing, as in a draft whose vocabulary has none of the allowed tokens.
    """
    values, fast = logits.numpy(), _fast()
    if fast is not None:
        scores = values.copy()
        left = fast.mask(scores, allowed)
    else:
        bits = np.unpackbits(allowed.astype("<u4").view(np.uint8), bitorder="little", count=len(values))
        scores = np.where(bits.view(np.bool_), values, np.float32(-np.inf))
        left = bool((scores > -np.inf).any())
    return torch.from_numpy(scores) if left else logits


def _lead(values: NDArray[np.floating[Any]]) -> tuple[int, float]:
    best = int(values.argmax())
    before, after = values[:best].max(initial=-np.inf), values[best + 1 :].max(initial=-np.inf)
    return best, float(values[best] - max(before, after))


def _at_least(scores: Tensor, floor: float) -> Tensor:
    values = scores.numpy()
    return torch.from_numpy(np.where(values < np.float32(floor), np.float32(-np.inf), values))


def _largest(scores: Tensor, rank: int) -> float:
    """Return the value at `rank`, counted from 1, of the scores in falling order.

    Scores are seen in groups first: `rank` of the groups have their largest score at or above a bound, so the value is
    among the few scores that are not below it.
    """
    groups = len(scores) // GROUPED
    if rank >= groups:
        return float(scores.topk(rank).values[-1])
    bound = scores[: groups * GROUPED].view(GROUPED, groups).amax(0).topk(rank).values[-1]
    left = np.flatnonzero(~(scores.numpy() < bound.numpy()))
    return float(scores[torch.from_numpy(left)].topk(rank).values[-1])


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Keep the most probable tokens that together reach `top_p`; the lower id first among equals."""
    included = scores.numpy() != -np.inf
    left = None if included.all() else torch.from_numpy(np.flatnonzero(included))
    p = (scores if left is None else scores[left]).double().softmax(-1)
    # All tokens below this bound together weigh less than 1 - top_p, so none is kept or needs sorting.
    candidates = torch.from_numpy(np.flatnonzero(p.numpy() > (1.0 - top_p) / max(1, len(p))))
    order = p[candidates].sort(descending=True, stable=True)
    before = order.values.cumsum(0) - order.values
    likely = candidates[order.indices[before < top_p]]
    if left is not None:
        likely = left[likely]
    return torch.full_like(scores, float("-inf")).index_copy_(0, likely, scores[likely])
