"""The head of EAGLE and EAGLE-2 (Li et al. 2024), which differ only in the trees that they draft.

A feature f is the target's last state after the final norm, e a token's embedding, and

    g = layer(W [e, f] + b)

guesses the next feature: a layer without a norm before its attention. The target's own head makes scores of g.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import HeadLayer, Places
from specchat.engine.heads.settings import layer_of
from specchat.engine.heads.target import Target
from specchat.engine.heads.tensors import Embedding, fits_target
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights


class EagleHead(FeatureHead):
    """Keys: "fc.weight", "fc.bias" if any, "layers.0.*", and "embed_tokens.weight" if it is not the target's."""

    _embedding: Embedding

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        c = layer_of(files, files.settings)
        if c.layers != 1:
            raise ModelError(
                f"{files.folder}: the head has {c.layers} layers (num_hidden_layers), and EAGLE has one. "
                "Name the folder under heads.eagle3 if it is of EAGLE-3."
            )
        with Weights(files, model.device) as weights:
            fits_target(files, weights, model.config.hidden, c.hidden, c.hidden + model.config.hidden)
            bias = weights.get("fc.bias", c.hidden) if "fc.bias" in weights else None
            self._fc = Linear(weights.get("fc.weight", c.hidden, 2 * c.hidden), bias, drafting=True)
            self._layer = HeadLayer(weights, "layers.0.", c, c.hidden, model)
            self._embedding = Embedding(weights, model, c.hidden)
            super().__init__(target, weights.count(), c.hidden)
        self._last = model.config.layers
        model.record_states([self._last])

    @property
    def looked_at(self) -> Sequence[int]:
        return (self._last,)

    def feature(self, states: Tensor) -> Tensor:
        return self.target.model.normed(states)

    def step(self, embedded: Tensor, features: Tensor, at: Places) -> Tensor:
        x = self._fc(torch.cat([embedded, features], -1))
        return self._layer(x, x, at)

    def fed_on(self, hidden: Tensor) -> Tensor:
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.model.projected(hidden)

    def memory(self) -> int:
        return self._fc.memory() + self._layer.memory() + self._embedding.memory() + 4 * self._made.numel()
