"""The head of EAGLE and EAGLE-2 (Li et al. 2024), which differ only in their draft trees.

A feature f is the target's last hidden state after the final norm, e a token's embedding, and

    g = layer(W [e, f] + b)

predicts the next feature. The layer has no norm before its attention. The target's own head turns g into logits.
"""

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads import settings
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import compiles
from specchat.engine.heads.rows import HeadRows
from specchat.engine.heads.target import Embedding, Target
from specchat.engine.heads.tensors import as_stored, fits_target, with_bias
from specchat.engine.recipe import Matrix
from specchat.engine.weights.weights import Weights


class EagleHead(FeatureHead):
    """EAGLE head. Keys: "fc.weight", "fc.bias" if any, "layers.0.*", and "embed_tokens.weight" if not the target's."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = settings.eagle(files, model.config, "eagle")
        shape, recipe = given.shape, given.recipe
        with Weights(files, model.device) as weights:
            super().__init__(target, recipe, weights.count())
            tensors, hidden = self.tensors, shape.hidden
            fits_target(files, weights, model.config.hidden, hidden, hidden + model.config.hidden)
            self._fc = tensors.read(weights, with_bias(weights, Matrix(("fc",), (hidden,), 2 * hidden)))
            self._layer = self._read_layer(weights, as_stored(weights, recipe.layers[0]), compiles(shape))
            self._embedding = Embedding(weights, tensors, model, hidden)
        model.record_states(recipe.aux_layers)

    def feature(self, states: Tensor) -> Tensor:
        return self.target.model.final_norm(states)

    def step(self, embedded: Tensor, features: Tensor, rows: HeadRows) -> Tensor:
        x = self.tensors.product(torch.cat([embedded, features], -1), self._fc)
        return self._layer(x, rows, x)

    def next_features(self, hidden: Tensor) -> Tensor:
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.model.project(hidden)
