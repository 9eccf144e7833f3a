"""A small model of the same family drafts token by token (Leviathan et al. 2023)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.model.decoder import Decoder, shared_prefix

UNSURE = 0.7
"""A draft ends with a token that it gave less than this probability: what follows is rarely reached."""


class DraftModelDrafter:
    """Samples with the target's options and the target's noise, so that both mostly choose alike.

    Whether it goes on depends on what it has drafted and not on what it would draft next, so that the ratio test stays
    exact.
    """

    name = "draft"

    def __init__(self, decoder: Decoder, vocab: int) -> None:
        """`vocab` is the target's: draft logits are cut or padded to it where only padding differs."""
        self.decoder = decoder
        self.vocab = vocab
        self._tokens: list[int] = []
        """The tokens in the draft's cache."""

    def begin(self, prompt: Sequence[int]) -> None:
        self._keep(shared_prefix(self._tokens, prompt[:-1]))

    def forget(self) -> None:
        self._keep(0)

    def propose(self, committed: Sequence[int], limit: int, sampler: Sampler, history: History, ratio: bool) -> Draft:
        limit = min(limit, self.decoder.context - len(committed))
        draft = Draft()
        if limit <= 0:
            return draft
        distributions = []
        try:
            for i in range(limit):
                fed = [draft.tokens[-1]] if draft.tokens else committed[len(self._tokens) :]
                scores = sampler.scores(self._feed(fed), history)
                token = sampler.pick(scores, len(committed) + i)
                draft.tokens.append(token)
                history.push(token)
                if ratio:
                    distributions.append(sampler.probabilities(scores))
                draft.confidence.append(float(scores.softmax(0)[token]))
                if draft.confidence[-1] < UNSURE:
                    break
        finally:
            for drafted in draft.tokens:
                history.pop(drafted)
        draft.q = torch.stack(distributions) if ratio else None
        return draft

    def observe(self, committed: Sequence[int]) -> None:
        self._keep(min(len(self._tokens), len(committed) - 1))

    def _feed(self, tokens: Sequence[int]) -> Tensor:
        """Append tokens to the cache; logits float32 [vocab] after the last."""
        logits = self.decoder.logits(self.decoder.prefill(tokens)[-1:])[0]
        self._tokens += tokens
        missing = self.vocab - logits.shape[0]
        return pad(logits, (0, missing), value=float("-inf")) if missing else logits

    def _keep(self, length: int) -> None:
        self.decoder.cache.truncate(length)
        del self._tokens[length:]
