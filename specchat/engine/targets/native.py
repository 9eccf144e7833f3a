"""The native decoder as a target: its cache holds all committed tokens but the last."""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.model.decoder import Decoder, shared_prefix


class NativeTarget:
    """Verifies chains; row-invariant, so a token's logits do not depend on how many are checked together."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []
        """What the cache holds."""

    @property
    def context(self) -> int:
        return self.decoder.context

    def begin(self, prompt: Sequence[int]) -> int:
        """Bring the cache to all of `prompt` but its last token; returns how many tokens were there already."""
        reused = shared_prefix(self.tokens, prompt[:-1])
        self.keep(reused)
        rest = list(prompt[reused:-1])
        self.decoder.prefill(rest)
        self.tokens += rest
        return reused

    def extend(self, tokens: Sequence[int]) -> Tensor:
        """Append the pending token and a draft; logits float32 [len(tokens), vocab]."""
        logits = self.decoder.logits(self.decoder.forward(tokens))
        self.tokens += tokens
        return logits

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens, dropping also what a failed or cancelled step left behind."""
        self.decoder.cache.truncate(length)
        del self.tokens[length:]
