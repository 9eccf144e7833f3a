"""The layer for multi-token prediction that a target was trained with (DeepSeek-V3, 2024, section 2.2; MiMo, 2025).

h is the target's last hidden state before the final norm, e the embedding of the token after it, and

    g = layer(W [norm(h), norm(e)])
    scores = V norm(g)

with the target's own head V. For a draft token h is the previous g: the layer was trained for one token and drafts
further ones from its own hidden states. FastMTP (Cai et al. 2025) trains it for these, on those after the norms.
"""

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import Places
from specchat.engine.heads.recipe import compiles
from specchat.engine.heads.settings import MTP_LAYERS, MTP_PREFIX, MtpSettings
from specchat.engine.heads.target import Target
from specchat.engine.model.weights import Weights
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.reference.layer import norm

PREFIX = f"{MTP_PREFIX}.0."


class MtpHead(FeatureHead):
    """MTP layer as a head. Keys under "model.mtp_layers.0.": those of a target's layer, "input_proj.weight" and the
    norms "hidden_layernorm", "token_layernorm" and "final_layernorm"."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights, from the target's own files where these are the target's.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = MtpSettings.read(files, model.config)
        recipe, hidden = given.recipe(model.config), given.shape.hidden
        with Weights(files, model.device) as weights:
            super().__init__(target, recipe, weights.count(PREFIX))
            _agree(files, weights)
            tensors, eps = self._tensors, given.shape.recipe.norm.eps
            self._of_state, self._of_token, self._final = (
                tensors.read(weights, Norm(f"{PREFIX}{name}_layernorm", hidden, eps))
                for name in ("hidden", "token", "final")
            )
            self._joined = tensors.read(weights, Matrix((f"{PREFIX}input_proj",), (hidden,), 2 * hidden))
            self._layer = self._read_layer(weights, recipe.layers[0], compiles(given.shape))
        self._normed = given.normed
        model.record_states(recipe.aux_layers)

    def feature(self, states: Tensor) -> Tensor:
        return self.target.model.normed(states) if self._normed else states

    def step(self, embedded: Tensor, features: Tensor, at: Places) -> Tensor:
        tensors = self._tensors
        both = [norm(self._of_state, features, tensors), norm(self._of_token, embedded, tensors)]
        return self._layer(tensors.product(torch.cat(both, -1), self._joined), at)

    def fed_on(self, hidden: Tensor) -> Tensor:
        return norm(self._final, hidden, self._tensors) if self._normed else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.model.projected(norm(self._final, hidden, self._tensors))


def _agree(files: HeadFiles, weights: Weights) -> None:
    """Check that the layer is present, and no other.

    Raises:
        ModelError: it is not.
    """
    if not weights.count(PREFIX):
        raise ModelError(
            f"{files.folder} holds no layer for multi-token prediction ({PREFIX}*): this copy was made without it, "
            "or is of a target that has none. Take the checkpoint as it was published."
        )
    if weights.count(f"{MTP_PREFIX}.") != weights.count(PREFIX):
        raise ModelError(
            f"{files.folder} holds more layers for multi-token prediction than config.json tells of ({MTP_LAYERS})."
        )
