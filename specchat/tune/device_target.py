"""A target on a GPU for training, in plain torch: its embeddings, last norm and head."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from specchat.engine.model.norm import RMSNorm, capped
from specchat.engine.reference.tensors import slabs
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.target import FrozenTarget

if TYPE_CHECKING:  # Triton is not everywhere
    from specchat.engine.device.model import DeviceModel

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
        self._norm = RMSNorm(weights.norms[self._recipe.norm], self._recipe.norm.eps, self._recipe.norm.centred)

    def embed(self, tokens: Tensor) -> Tensor:
        return self._recipe.embed_scale * embedding(tokens.to(self.device), self._embed).float()

    @torch.no_grad()
    def final_norm(self, states: Tensor) -> Tensor:
        return self._norm(states)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        normed = self._norm(states)
        made = torch.cat([linear(normed, slab) for slab in slabs(self._head, SLAB)], -1)
        return capped(self._recipe.logit_scale * made, self._recipe.cap)
