"""What decoders of our own on the processor share, compiled or not."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.model.cache import KVCache
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.going import Going
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.runs import Runs
from specchat.engine.model.taps import Taps


@dataclass(frozen=True)
class Skip:
    """Sub-layers left out of a forward pass (SWIFT): indices of layers whose attention or MLP is skipped."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()


NOTHING = Skip()


class CachedDecoder(ABC):
    """A loaded model with its cache, on the processor: all that follows from a pass and its logits."""

    config: ModelConfig
    context: int
    cache: KVCache
    compiled: ClassVar[bool] = False
    """Whether compiled functions run it, so that they can here."""
    device: ClassVar[torch.device] = torch.device("cpu")
    taps: Taps | None = None
    """The hidden states that are kept of a text, if any are."""

    @abstractmethod
    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """What the first layer is given: float32 [len(tokens), hidden]."""

    @abstractmethod
    def through(
        self, x: Tensor, first: int, last: int, start: int, runs: Runs | None = None, skip: Skip = NOTHING
    ) -> Tensor:
        """Take hidden states through layers first, ..., last - 1, writing these layers' entries from slot `start` on.

        Args:
            x: float32 [rows, hidden], at most PREFILL_ROWS, after `first` layers; it stays as it is.
            runs, skip: as for `forward`.

        Returns:
            float32 [rows, hidden], bit for bit what a pass over all layers has after `last` of them.
        """

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Runs | None = None) -> Tensor:
        """Write the entries of `tokens` (at most PREFILL_ROWS) to the cache from slot `start` on; their hidden states.

        Entries from `start` on count for nothing before, and those after the written ones for nothing afterwards. With
        `runs` the tokens are nodes of a tree: `keep` then puts one path of it into the cache.

        Returns:
            float32 [len(tokens), hidden], before the final norm. Row r is bit for bit what it would be alone.
        """
        return self.onward(self.embedded(tokens), 0, self.config.layers, start, runs, skip)

    def onward(
        self, x: Tensor, first: int, last: int, start: int, runs: Runs | None = None, skip: Skip = NOTHING
    ) -> Tensor:
        """As `through`, and keep what is tapped on the way, `x` too."""
        done = first
        if self.taps is not None and skip == NOTHING:
            for layer in self.taps.layers:
                if first <= layer <= last:
                    x, done = self.through(x, done, layer, start, runs), layer
                    self.taps.put(layer, x, start, runs)
        return self.through(x, done, last, start, runs, skip)

    def tap(self, layers: Sequence[int]) -> Taps:
        """Keep the hidden states after so many layers too, 0 being the embeddings, of all tokens from here on."""
        kept = () if self.taps is None else self.taps.layers
        self.taps = Taps([*kept, *layers], self.config.hidden, self.context)
        return self.taps

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """The hidden states after `layer` layers, which are tapped, in slots first, ..., last - 1; see `Taps.at`."""
        assert self.taps is not None
        return self.taps.at(layer, first, last)

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Put the entries of these rows of a tree, a path of it, into the cache from slot `start` on."""
        self._keep_entries(rows, start)
        if self.taps is not None:
            self.taps.keep(rows, start)

    @abstractmethod
    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        """Copy keys and values of these rows of the stash."""

    @abstractmethod
    def normed(self, hidden: Tensor) -> Tensor:
        """Final norm alone: float32 [rows, hidden]."""

    @abstractmethod
    def projected(self, hidden: Tensor) -> Tensor:
        """Head alone, as `logits` without the norm; it may be rounded otherwise."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: float32 [rows, hidden] -> float32 [rows, vocab]."""

    def scored(self, tokens: Sequence[int], start: int, runs: Runs | None = None) -> Tensor:
        """`logits` of what `forward` makes of `tokens`."""
        return self.logits(self.forward(tokens, start, runs=runs))

    def drafted(self, tokens: Sequence[int], start: int, going: Going, skip: Skip) -> list[tuple[int, float]]:
        """A chain drafted in one go after `tokens`, which go through from slot `start` on as in `forward`.

        Returns:
            tokens and their probabilities; none where this is not for this model, or its scores are no numbers.
        """
        del tokens, start, going, skip
        return []

    @property
    def packed_embeddings(self) -> NDArray[Any] | None:
        """float16, bfloat16 in int16 or float32 [panels, hidden, LANES]; None where torch looks tokens up."""
        return None

    @property
    def vocab(self) -> int:
        """Columns of the logits."""
        return self.config.vocab

    @property
    def block(self) -> int:
        """Most tokens of one `write`."""
        return PREFILL_ROWS

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on."""
        self.forward(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`."""
        return self.scored([token], start)[0]

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """The likeliest token after each of `tokens` at slots start .. without `skip`; the cache stays as it is."""
        held = [part.narrow(1, start, len(tokens)) for part in (*self.cache.keys, *self.cache.values)]
        kept = [part.clone() for part in held]
        try:
            likeliest: list[int] = self.logits(self.forward(tokens, start, skip)).argmax(-1).tolist()
        finally:
            for part, before in zip(held, kept, strict=True):
                part.copy_(before)
        return likeliest

    @abstractmethod
    def memory(self) -> int:
        """Bytes of weights, cache and kept hidden states; a table that is looked up and multiplied may count twice."""

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()
