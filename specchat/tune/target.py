"""A target as training uses it: its tables and scores, as tensors that gradients may pass."""

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import linear

from specchat.engine.formats.layout import values_of
from specchat.engine.formats.quantise import by_rows, dequantised
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.norm import RMSNorm, capped
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.reference.tensors import slabs
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import read_dense_table, read_norm
from specchat.engine.weights.weights import Weights

if TYPE_CHECKING:
    from specchat.engine.device.model import DeviceModel


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
            return read_dense_table(weights, self.config.recipe.head).float()

    def last_norm(self) -> Tensor:
        """The weights float32 [hidden] of the final norm.

        Raises:
            ModelError: they are missing or damaged.
        """
        with Weights(self.checkpoint) as weights:
            return read_norm(weights, replace(self.config.recipe.norm, bias=False))


SLAB = 1 << 24
"""Weights of the head dequantised at a time: 64 MiB in float32."""


class DeviceTarget(FrozenTarget):
    """A frozen target on a GPU. Its logits are float32 products of the head, a slab of which is dequantised at a time.

    It holds embeddings, last norm and head, and not the layers: these can be released.
    """

    def __init__(self, checkpoint: Checkpoint, model: "DeviceModel") -> None:
        """`model` is that of `checkpoint`, loaded."""
        self.checkpoint, self.device = checkpoint, model.device
        weights, self._recipe = model.decoder.weights, checkpoint.config.recipe
        self._embed, self._head = weights.embed, weights.head
        self._norm = RMSNorm.of(self._recipe.norm, weights.norms[self._recipe.norm])

    def embed(self, tokens: Tensor) -> Tensor:
        # The table may lie in main memory.
        rows = by_rows(self._embed, itemgetter(tokens.to(values_of(self._embed).device)))
        return self._recipe.embed_scale * dequantised(rows, torch.float32).to(self.device)

    @torch.no_grad()
    def final_norm(self, states: Tensor) -> Tensor:
        return self._norm(states)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        normed = self._norm(states)
        scores = torch.cat([linear(normed, slab) for slab in slabs(self._head, SLAB)], -1)
        return capped(self._recipe.logit_scale * scores, self._recipe.cap)
