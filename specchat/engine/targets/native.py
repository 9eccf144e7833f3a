"""The native decoder as a target: its cache holds all committed tokens but the last."""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.model.decoder import Decoder, shared_prefix
from specchat.engine.model.rows import PREFILL_ROWS


class NativeTarget:
    """Verifies chains; row-invariant, so a token's logits do not depend on how many are checked together."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []
        """The tokens in the cache."""

    @property
    def context(self) -> int:
        return self.decoder.context

    def begin(self, prompt: Sequence[int]) -> int:
        """Bring the cache to all of `prompt` but its last token; returns how many tokens were there already."""
        reused = self.rewind(prompt)
        while self.fill(prompt):
            pass
        return reused

    def rewind(self, prompt: Sequence[int]) -> int:
        """Keep what the cache shares with `prompt`; returns how many tokens that is."""
        reused = shared_prefix(self.tokens, prompt[:-1])
        self.keep(reused)
        return reused

    def fill(self, prompt: Sequence[int]) -> bool:
        """After `rewind`: append one block of `prompt`; False when all but its last token are there."""
        block = list(prompt[len(self.tokens) : len(prompt) - 1][:PREFILL_ROWS])
        if block:
            self.decoder.forward(block)
            self.tokens += block
        return len(self.tokens) < len(prompt) - 1

    def extend(self, tokens: Sequence[int]) -> Tensor:
        """Append the pending token and a draft; logits float32 [len(tokens), vocab]."""
        logits = self.decoder.logits(self.decoder.forward(tokens))
        self.tokens += tokens
        return logits

    def next_logits(self, text: Sequence[int]) -> Tensor:
        """Logits float32 [vocab] of the token after `text`."""
        self.begin(text)
        return self.extend(text[-1:])[0]

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens, dropping also what a failed or cancelled step left behind."""
        self.decoder.cache.truncate(length)
        del self.tokens[length:]
