"""What heads look at in a target, wherever it runs. What they make stands on the same device."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.decoding.cached import Model
from specchat.engine.model.config import ModelConfig


class Target(Model, Protocol):
    """A decoder of our own that keeps hidden states. All tensors are on `device`."""

    @property
    def config(self) -> ModelConfig:
        """Its shapes."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its states are."""
        ...

    @property
    def vocab(self) -> int:
        """Columns of its logits."""
        ...

    @property
    def compiled(self) -> bool:
        """Whether compiled functions run on the processor that it runs on."""
        ...

    @property
    def packed_embeddings(self) -> NDArray[Any] | None:
        """As `CachedDecoder.packed_embeddings`."""
        ...

    def record_states(self, layers: Sequence[int]) -> object:
        """Keep the hidden states after so many layers too, 0 being the embeddings, of all tokens from here on."""
        ...

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """Those after `layer` layers in slots first, ..., last - 1: float32 [last - first, hidden]."""
        ...

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """What the first layer is given: float32 [len(tokens), hidden]."""
        ...

    def normed(self, hidden: Tensor) -> Tensor:
        """Final norm alone: float32 [rows, hidden]."""
        ...

    def projected(self, hidden: Tensor) -> Tensor:
        """Head alone: float32 [rows, hidden] -> float32 [rows, vocab], which the next pass may overwrite.

        Rows are at most those of a step.
        """
        ...
