"""The device's target and draft as the session sees them: which tokens their caches hold."""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.device.buffers import PASS_ROWS
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.launches import Launches
from specchat.engine.model.decoder import shared_prefix


class DeviceTarget:
    """A cache on the device, filled in passes of PASS_ROWS; `tokens` are those it holds."""

    def __init__(self, decoder: DeviceDecoder, launches: Launches) -> None:
        self.decoder = decoder
        self.tokens: list[int] = []
        self._launches = launches

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
        """After `rewind`: append one pass of `prompt`; False when all but its last token are there."""
        block = list(prompt[len(self.tokens) : len(prompt) - 1][:PASS_ROWS])
        if block:
            self._launches.prefill(self.decoder, block, len(self.tokens))
            self.tokens += block
        return len(self.tokens) < len(prompt) - 1

    def next_logits(self, text: Sequence[int]) -> Tensor:
        """Logits float32 [vocab] of the token after `text`, on the host."""
        self.begin(text)
        return self._launches.next_logits(text[-1], len(text) - 1)

    def keep(self, length: int) -> None:
        """Roll back to the first `length` tokens."""
        del self.tokens[length:]
