"""A target as training uses it: its tables and scores, as tensors that gradients may pass."""

import torch
from torch import Tensor

from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import read_norm, read_table
from specchat.engine.weights.weights import Weights


class FrozenTarget:
    """A frozen target that our own decoder runs on the processor.

    Attributes:
        device: where it takes and gives tensors, and where what learns from it is trained.
    """

    device = torch.device("cpu")

    def __init__(self, checkpoint: Checkpoint, model: CachedDecoder) -> None:
        """`model` is that of `checkpoint`, loaded."""
        self.checkpoint = checkpoint
        self.model = model

    @property
    def config(self) -> ModelConfig:
        return self.checkpoint.config

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings float32 [*tokens.shape, hidden] of tokens int64."""
        rows = self.model.embed(tokens.flatten().tolist(), normed=False)
        return rows.clone().view(*tokens.shape, self.config.hidden)

    def final_norm(self, states: Tensor) -> Tensor:
        """States float32 [rows, hidden] after the last layer, with the final norm."""
        return torch.cat([self.model.final_norm(block).clone() for block in states.split(PREFILL_ROWS)])

    def logits(self, states: Tensor) -> Tensor:
        """Logits float32 [rows, vocab] of states [rows, hidden] after the last layer."""
        return torch.cat([self.model.logits(block).clone() for block in states.split(PREFILL_ROWS)])

    def head(self) -> Tensor:
        """The matrix float32 [vocab, hidden] that gives logits, which is the embedding where the two are tied.

        Raises:
            ModelError: it is missing or damaged.
        """
        with Weights(self.checkpoint) as weights:
            return read_table(weights, self.config.recipe.head).float()

    def last_norm(self) -> Tensor:
        """The weights float32 [hidden] of the final norm.

        Raises:
            ModelError: they are missing or damaged.
        """
        with Weights(self.checkpoint) as weights:
            return read_norm(weights, self.config.recipe.norm)
