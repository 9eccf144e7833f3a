"""The interface of what `training.py` trains: heads, or a whole draft model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from specchat.tune.rows import Batch


class Rates(NamedTuple):
    """Highest learning rates: `muon` of inner matrices, `adam` of all other parameters."""

    muon: float
    adam: float


SCORES = 1 << 24
"""Scores that are held at a time, several times over: a vocabulary of 150,000 would take gigabytes for all tokens."""


def in_blocks(loss: Callable[..., Tensor], width: int, *rows: Tensor) -> Tensor:
    """The sum of `loss` over blocks of `rows`, each of which makes scores [rows, width], float32 [].

    Blocks are computed again when gradients pass, so that the scores of one are held at a time.
    """
    most = max(1, SCORES // width)
    if len(rows[0]) <= most:
        return loss(*rows)
    blocks = zip(*(one.split(most) for one in rows), strict=True)
    return torch.stack([checkpoint(loss, *block, use_reentrant=False) for block in blocks]).sum()


class Learner(nn.Module, ABC):
    """A module that learns from the target's replies.

    Attributes:
        scoring: endings of the names of matrices that AdamW trains rather than Muon: embeddings and heads.
    """

    scoring: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @property
    @abstractmethod
    def rates(self) -> Rates:
        """The highest learning rates."""

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch in parts whose gradients are computed one after another, so that memory holds them.

        Where there are several, the loss has to be a mean over the tokens of the replies.
        """
        return [batch]

    @abstractmethod
    def loss(self, batch: Batch, seed: int) -> Tensor:
        """The loss of a batch, float32 []; `seed` fixes what is drawn at random."""
