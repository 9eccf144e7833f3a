"""What heads have in common as they stand for a draft model."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.target import Target
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import Layout


class StandIn(ABC):
    """Heads as a model with a cache: what is handed to them are tokens, what they look at are the target's states.

    The states of slots 0, ..., len(target.tokens) - 1 are the target's own; tokens after these are drafted ones.
    """

    block = PREFILL_ROWS

    def __init__(self, target: CachedModel[Target], parameters: int) -> None:
        """`parameters` is the number of weights."""
        self.target = target
        self._parameters = parameters
        self.vocab, self.context = target.model.vocab, target.model.context

    @abstractmethod
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Layout | None = None) -> Tensor:
        """As `HostModel.forward`; trees come level by level (`tree_layout.Levels`), and nothing is ever left out."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Scores float32 [rows, vocab] of rows that `forward` made last, -inf where there are none."""

    @abstractmethod
    def memory(self) -> int:
        """Bytes held."""

    def parameters(self) -> int:
        """Number of weights."""
        return self._parameters

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on."""
        self.forward(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Scores float32 [vocab] after `token` at slot `start`."""
        return self.logits(self.forward([token], start))[0]

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """Nobody asks heads to leave something out."""
        raise NotImplementedError

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Nothing is kept of a tree: what stays is read again, with the target's own states."""
        return
