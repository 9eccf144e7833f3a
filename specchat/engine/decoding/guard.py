"""The margin guards: where rows of a pass depend on how many there are, close choices are made again.

For kernels that are not ours: `gguf/proof.py` and `hf/proof.py` measure how far rows are apart, `margin.py` tells which
choices are as close.

`Guard` is for rows that are never alike: one row alone makes a close choice. It decides as plain decoding would but
for what the entries of the cache differ by, so that it is a check, not a proof. `RoughGuard` is for rows that are alike
in passes of several, where one row alone is only faster: plain decoding is checked as well, and what one row put into
the cache is read again before a close choice, so that all strategies decide as passes of several rows do.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.decoding.cached import HostModel
from specchat.engine.decoding.margin import Margin
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.options import Sampling


class Rough(HostModel, Protocol):
    """A model whose rows are alike but for those that go alone."""

    @property
    def rough(self) -> bool:
        """Whether the logits made last may be off by what one row alone is rounded otherwise."""
        ...

    def exact(self, tokens: Sequence[int], start: int) -> Tensor:
        """Logits float32 [len(tokens), vocab] with nothing rough before or in them."""
        ...


class Guard:
    """Makes close choices of a chain again, by one row alone."""

    def __init__(self, model: HostModel, error: float) -> None:
        """`error` is what a logit may be off by."""
        self._model = model
        self._error = error
        self._margin = Margin(Sampler(Sampling()), error)

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
        if not self._doubtful(fed):
            return logits, again
        if self._margin.sampler is not sampler:
            self._margin = Margin(sampler, self._error)
        if self._margin.none(logits):
            return logits, again
        try:
            for node in range(len(fed)):
                place = start + node + 1
                if self._margin.close(logits[node], place, history):
                    logits = self._again(logits, fed, node, start)
                    again += 1
                    if not self._doubtful(fed):
                        break
                token = sampler.choose(logits[node], place, history)
                if node + 1 == len(fed) or token != fed[node + 1]:
                    break
                history.push(token)
                kept.append(token)
        finally:
            for token in kept:
                history.pop(token)
        return logits, again

    def _doubtful(self, fed: Sequence[int]) -> bool:
        """Whether a choice after `fed` may be off."""
        return len(fed) > 1

    def _again(self, logits: Tensor, fed: Sequence[int], node: int, start: int) -> Tensor:
        """Row `node` made by one row alone, and those after it anew, for their entries went with it."""
        rows = [logits[:node].clone(), self._model.logits(self._model.forward([fed[node]], start + node)).clone()]
        if rest := fed[node + 1 :]:
            rows.append(self._model.logits(self._model.forward(rest, start + node + 1)))
        return torch.cat(rows)


class RoughGuard(Guard):
    """Makes close choices that one row alone had a part in again, by passes of several."""

    def __init__(self, model: Rough, error: float) -> None:
        super().__init__(model, error)
        self._exact = model

    def _doubtful(self, fed: Sequence[int]) -> bool:
        return self._exact.rough

    def _again(self, logits: Tensor, fed: Sequence[int], node: int, start: int) -> Tensor:
        """All rows anew."""
        return self._exact.exact(fed, start)
