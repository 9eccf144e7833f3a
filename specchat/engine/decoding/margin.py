"""Detection of close choices, which an error of every logit could change.

Both the gap between the best and the next token, noise included, and the tokens that pass a filter count.
"""

from dataclasses import replace
from math import exp

import torch
from torch import Tensor

from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.options import Sampling

LEAST = 1e-6
"""Lower bound of top-p, above 0."""


class Margin:
    """Detector of close choices under one set of sampling options."""

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

    def close(self, row: Tensor, place: int, history: History) -> bool:
        """Return True if the choice from `row` float32 [vocab] at absolute position `place` is close."""
        if not self._filters:
            return self.sampler.lead(self.sampler.scores(row, history), place)[1] <= self._off
        bare = self._bare.scores(row, history)
        token, lead = self.sampler.lead(_among(bare, self._looser.scores(row, history), self._off), place)
        if lead <= self._off:
            return True
        sure = _among(bare, self._tighter.scores(row, history), -self._off)
        return bool(sure[token] == -torch.inf)


def _moved(s: Sampling, more: float) -> Sampling:
    """Return options whose filters admit scores lower by `more`, or higher if negative."""
    top_p = min(1.0, max(LEAST, s.top_p + more)) if s.top_p < 1 else 1.0
    return replace(s, top_p=top_p, min_p=min(1.0, s.min_p * exp(-more)))


def _among(bare: Tensor, kept: Tensor, more: float) -> Tensor:
    """Mask unfiltered scores `bare` float32 [vocab] more than `more` below the least score in `kept`."""
    floor = min(float(kept[kept > -torch.inf].min()) - more, float(bare.max()))
    return bare.masked_fill(bare < floor, -torch.inf)
