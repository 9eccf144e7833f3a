"""The interface of what `training.py` trains: heads, or a whole draft model."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from specchat.tune.rows import Batch


class Rates(NamedTuple):
    """Highest learning rates: `muon` of inner matrices, `adam` of all other parameters."""

    muon: float
    adam: float


class Learner(nn.Module, ABC):
    """A module that learns from the target's replies.

    Attributes:
        scoring: endings of the names of matrices that AdamW trains rather than Muon: embeddings and heads.
    """

    scoring: tuple[str, ...] = ()

    @property
    @abstractmethod
    def rates(self) -> Rates:
        """The highest learning rates."""

    @abstractmethod
    def loss(self, batch: Batch, seed: int) -> Tensor:
        """The loss of a batch, float32 []; `seed` fixes what is drawn at random."""
