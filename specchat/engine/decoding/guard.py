"""Margin guards: repeat close choices if the logits of a token depend on the number of tokens in a pass.

They serve kernels of other projects. `row_invariance.py` measures how far logits are apart, and `Margin` finds
choices that are as close.

`Guard` is for logits that differ between all pass sizes: a pass of one token repeats a close choice. It decides as
plain decoding up to differences in KV entries, so it is a check, not a proof. `RoughGuard` is for logits that differ
only in passes of one token, which are faster. It guards plain decoding as well, and rewrites KV entries of single-token
passes before a close choice, so that all strategies decide as passes of several tokens do.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.decoding.cached import HostModel
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.protocol.options import Sampling

LEAST = 1e-6
"""Lower bound of top-p, above 0."""


class Margin:
    """Detector of close choices under one set of sampling options: those that an error of every logit could change.

    Both the gap between the best and the next token, noise included, and the tokens that pass a filter count.
    """

    def __init__(self, sampler: Sampler, error: float) -> None:
        """Create a detector; `error` is the largest error of a logit."""
        s = sampler.sampling
        factor = max(s.repetition_penalty, 1 / s.repetition_penalty)
        self.sampler = sampler
        self._off = 2 * error * factor / (1.0 if sampler.greedy else s.temperature)
        self._filters = not sampler.greedy and bool(s.top_k or s.top_p < 1 or s.min_p)
        if self._filters:
            options = (replace(s, top_k=0, top_p=1.0, min_p=0.0), _moved(s, self._off), _moved(s, -self._off))
            self._bare, self._looser, self._tighter = (Sampler(each, sampler.constrained) for each in options)

    def none(self, logits: Tensor) -> bool:
        """Quick test of `logits` float32 [rows, vocab]: True if surely no choice after any row is close."""
        if not self.sampler.plain_argmax:
            return False
        return all(self.sampler.lead(row, 0)[1] > self._off for row in logits)

    def close(self, row: Tensor, position: int, history: History) -> bool:
        """Return True if the choice from `row` float32 [vocab] at absolute position `position` is close."""
        if not self._filters:
            return self.sampler.lead(self.sampler.scores(row, history), position)[1] <= self._off
        bare = self._bare.scores(row, history)
        token, lead = self.sampler.lead(_among(bare, self._looser.scores(row, history), self._off), position)
        if lead <= self._off:
            return True
        sure = _among(bare, self._tighter.scores(row, history), -self._off)
        return bool(sure[token] == -torch.inf)


def _moved(s: Sampling, more: float) -> Sampling:
    """Return options whose filters admit scores lower by `more`, or higher if negative."""
    top_p = min(1.0, max(LEAST, s.top_p + more)) if s.top_p < 1 else 1.0
    return replace(s, top_p=top_p, min_p=min(1.0, s.min_p * exp(-more)))


def _among(bare: Tensor, filtered: Tensor, more: float) -> Tensor:
    """Mask unfiltered scores `bare` float32 [vocab] more than `more` below the least score in `kept`."""
    floor = min(float(filtered[filtered > -torch.inf].min()) - more, float(bare.max()))
    return bare.masked_fill(bare < floor, -torch.inf)


class Rough(HostModel, Protocol):
    """A model whose logits depend on the pass size only in passes of one token."""

    @property
    def rough(self) -> bool:
        """True if the last logits may have the rounding of passes of one token."""
        ...

    def exact(self, tokens: Sequence[int], start: int) -> Tensor:
        """Return logits float32 [len(tokens), vocab] free of that rounding, KV entries before them included."""
        ...


class Guard:
    """Guard that repeats close choices of a chain by passes of one token."""

    def __init__(self, model: HostModel, error: float) -> None:
        """Create a guard; `error` is the largest error of a logit."""
        self._model = model
        self._error = error
        self._margin = Margin(Sampler(Sampling()), error)

    def settle(
        self, logits: Tensor, fed: Sequence[int], start: int, sampler: Sampler, history: History
    ) -> tuple[Tensor, int]:
        """Return the logits to judge a chain by, and the number of repeated choices.

        Args:
            logits: float32 [len(fed), vocab] of `fed`, the pending token and the draft.
            start: position of the pending token.
            history: counts the tokens before; unchanged on return.
        """
        pushed: list[int] = []
        again = 0
        if not self._doubtful(fed):
            return logits, again
        if self._margin.sampler is not sampler:
            self._margin = Margin(sampler, self._error)
        if self._margin.none(logits):
            return logits, again
        try:
            for node in range(len(fed)):
                position = start + node + 1
                if self._margin.close(logits[node], position, history):
                    logits = self._again(logits, fed, node, start)
                    again += 1
                    if not self._doubtful(fed):
                        break
                token = sampler.choose(logits[node], position, history)
                if node + 1 == len(fed) or token != fed[node + 1]:
                    break
                history.push(token)
                pushed.append(token)
        finally:
            for token in pushed:
                history.pop(token)
        return logits, again

    def _doubtful(self, fed: Sequence[int]) -> bool:
        return len(fed) > 1

    def _again(self, logits: Tensor, fed: Sequence[int], node: int, start: int) -> Tensor:
        """Recompute row `node` by a pass of one token, and later rows, whose KV entries that pass invalidates."""
        rows = [logits[:node].clone(), self._model.logits(self._model.forward([fed[node]], start + node)).clone()]
        if rest := fed[node + 1 :]:
            rows.append(self._model.logits(self._model.forward(rest, start + node + 1)))
        return torch.cat(rows)


class RoughGuard(Guard):
    """Guard that repeats close choices affected by passes of one token, by passes of several."""

    def __init__(self, model: Rough, error: float) -> None:
        super().__init__(model, error)
        self._exact = model

    def _doubtful(self, fed: Sequence[int]) -> bool:
        return self._exact.rough

    def _again(self, logits: Tensor, fed: Sequence[int], node: int, start: int) -> Tensor:
        return self._exact.exact(fed, start)
