"""The contract of models that another program computes, or that translate for another model: chains, no trees."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout

BLOCK = 512
"""Largest number of tokens in a pass."""


class ChainOnlyModel(ABC):
    """The common part of a `HostModel` of one sequence whose passes give logits at once. Not thread-safe."""

    program: ClassVar[str]
    """Names what computes passes, in messages."""
    label: str = ""
    """Names the model in messages."""
    context: int
    vocab: int

    @abstractmethod
    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        """Run `tokens` from position `start` on, after the ones before them.

        Returns:
            logits float32 [len(tokens) or the last ones, vocab], on the host; the next pass may overwrite them.
        """

    @abstractmethod
    def write(self, tokens: Sequence[int], start: int) -> None:
        """Run `tokens` from position `start` on without logits."""

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Call `run`; raises ValueError for a tree and for skipped sub-layers."""
        if layout is not None or skip != NOTHING:
            raise ValueError(f"{self.program} computes chains, through all layers")
        return self.run(tokens, start)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return `hidden`: `forward` has computed the logits."""
        return hidden

    def keep(self, rows: Sequence[int], start: int) -> None:
        raise ValueError(f"{self.program} computes chains")

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at position `start`."""
        return self.run([token], start)[0].clone()

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        raise ValueError(f"{self.program} skips no layers")

    def fed(self, tokens: Sequence[int], start: int) -> list[int]:
        """Return `tokens` without padding tokens beyond this vocabulary; raises ValueError where they do not fit."""
        if start + len(tokens) > self.context:
            raise ValueError(f"{len(tokens)} tokens do not fit after {start} of {self.context}")
        return [min(token, self.vocab - 1) for token in tokens]
