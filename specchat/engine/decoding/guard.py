"""The margin guard: where rows of a pass depend on how many there are, close choices are made by one row alone.

For kernels that are not ours (`gguf/proof.py` measures how far rows are apart). A choice is close where another token
would be made were all scores off by as much: the gap between the best and the next, noise included, and what a filter
lets through are both looked at. This decides as plain decoding would but for what the entries of the cache differ by,
so that it is a check, not a proof.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

import torch
from torch import Tensor

from specchat.engine.decoding.cached import HostModel
from specchat.engine.decoding.sampler import History, Sampler

LEAST = 1e-6
"""Of the probability that the most likely tokens together reach: above 0."""


class Guard:
    """Makes close choices of a chain again."""

    def __init__(self, model: HostModel, error: float) -> None:
        """`error` is what a logit may be off by."""
        self._model = model
        self._error = error

    def settle(
        self, logits: Tensor, fed: Sequence[int], start: int, sampler: Sampler, history: History
    ) -> tuple[Tensor, int]:
        """The logits to judge a chain by, and how many choices were made again.

        Args:
            logits: float32 [len(fed), vocab] that the model gave for `fed`, the pending token and the drafted ones.
            start: the slot of the pending token.
            history: counts the tokens before; returned as it was.
        """
        kept: list[int] = []
        again = 0
        try:
            for node in range(len(fed)):
                place = start + node + 1
                if self._close(logits[node], place, sampler, history):
                    logits = self._alone(logits, fed, node, start)
                    again += 1
                token = sampler.choose(logits[node], place, history)
                if node + 1 == len(fed) or token != fed[node + 1]:
                    break
                history.push(token)
                kept.append(token)
        finally:
            for token in kept:
                history.pop(token)
        return logits, again

    def _alone(self, logits: Tensor, fed: Sequence[int], node: int, start: int) -> Tensor:
        """Row `node` made by one row alone, and those after it anew, for their entries went with it."""
        rows = [logits[:node].clone(), self._model.logits(self._model.forward([fed[node]], start + node)).clone()]
        if rest := fed[node + 1 :]:
            rows.append(self._model.logits(self._model.forward(rest, start + node + 1)))
        return torch.cat(rows)

    def _close(self, row: Tensor, place: int, sampler: Sampler, history: History) -> bool:
        """Whether another token might be chosen after `row` were every logit off by the error."""
        s = sampler.sampling
        factor = max(s.repetition_penalty, 1 / s.repetition_penalty)
        off = 2 * self._error * factor / (1.0 if sampler.greedy else s.temperature)
        best = sampler.perturbed(_let_through(sampler, row, history, off), place).topk(2)
        if float(best.values[0] - best.values[1]) <= off:
            return True
        if sampler.greedy or not (s.top_k or s.top_p < 1 or s.min_p):
            return False
        return sampler.pick(_let_through(sampler, row, history, -off), place) != int(best.indices[0])


def _let_through(sampler: Sampler, row: Tensor, history: History, more: float) -> Tensor:
    """Processed scores float32 [vocab], of which the filters let through so much lower ones; negative for higher."""
    s = sampler.sampling
    moved = replace(
        s,
        top_p=min(1.0, max(LEAST, s.top_p + more)) if s.top_p < 1 else 1.0,
        min_p=min(1.0, s.min_p * exp(-more)),
    )
    kept = Sampler(moved).scores(row, history)
    if sampler.greedy:
        return kept
    scores = Sampler(replace(s, top_k=0, top_p=1.0, min_p=0.0)).scores(row, history)
    floor = min(float(kept[kept > -torch.inf].min()) - more, float(scores.max()))
    return scores.masked_fill(scores < floor, -torch.inf)
