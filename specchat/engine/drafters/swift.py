"""SWIFT (Xia et al. 2024): the target drafts for itself with some of its attention and MLP sub-layers left out.

Which ones is searched while text is generated. Skipped attention writes no keys: whatever drafting writes lies beyond
the committed text and is overwritten when the target verifies.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.drafters.skip_search import WINDOW, SkipSearch
from specchat.engine.model.decoder import Decoder, Skip

CONFIDENT = 0.8
"""Drafting stops after a token the skipping model gives less than this probability."""
SEARCH_EVERY = 4
"""Verify steps between two trials of the search."""


class SwiftDrafter:
    """Shares the target's weights and cache; needs no draft model."""

    name = "swift"

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self._prompt = 0
        self.forget()

    def begin(self, prompt: Sequence[int]) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = SkipSearch(self.decoder.config.layers)
        self._steps = 0

    def propose(self, committed: Sequence[int], limit: int, sampler: Sampler, history: History, ratio: bool) -> Draft:
        draft = Draft()
        if limit <= 0:
            return draft
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0:
            self._try_another(committed)
        cache = self.decoder.cache
        start = cache.length
        distributions = []
        token = committed[-1]
        try:
            for i in range(limit):
                hidden = self.decoder.forward([token], self.search.best)
                scores = sampler.scores(self.decoder.logits(hidden)[0], history)
                token = sampler.pick(scores, len(committed) + i)
                draft.tokens.append(token)
                history.push(token)
                if ratio:
                    distributions.append(sampler.probabilities(scores))
                draft.confidence.append(float(scores.softmax(-1)[token]))
                if draft.confidence[-1] < CONFIDENT:
                    break
        finally:
            cache.truncate(start)
            for drafted in draft.tokens:
                history.pop(drafted)
        draft.q = torch.stack(distributions) if ratio else None
        return draft

    def observe(self, committed: Sequence[int]) -> None:
        pass

    def _try_another(self, committed: Sequence[int]) -> None:
        """Score one more skip set on the last generated tokens: the share it would have drafted right."""
        first = len(committed) - 1 - WINDOW
        if self.search.done or first < self._prompt:
            return
        window, expected = committed[first:-1], torch.tensor(committed[first + 1 :])
        self.search.offer(lambda skip: self._agreement(window, first, expected, skip))

    def _agreement(self, window: Sequence[int], first: int, expected: Tensor, skip: Skip) -> float:
        """Share of `expected` that the skipping model ranks first over `window`; the cache is left as it was."""
        cache = self.decoder.cache
        length = cache.length
        kept = [
            (k[:, first:length].clone(), v[:, first:length].clone())
            for k, v in zip(cache.keys, cache.values, strict=True)
        ]
        try:
            cache.truncate(first)
            choices = self.decoder.logits(self.decoder.forward(window, skip)).argmax(-1)
        finally:
            for layer, (keys, values) in enumerate(kept):
                cache.keys[layer][:, first:length] = keys
                cache.values[layer][:, first:length] = values
            cache.length = length
        return float((choices == expected).float().mean())
