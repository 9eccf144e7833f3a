"""The layer for multi-token prediction that a target was trained with (DeepSeek-V3, 2024, section 2.2; MiMo, 2025).

h is the target's last state before the final norm, e the embedding of the token after it, and

    g = layer(W [norm(h), norm(e)])
    scores = V norm(g)

with the target's own head V. Of a drafted token h is the g before it: the layer was trained for one token and drafts
further ones from its own states. FastMTP (Cai et al. 2025) trains it for these, on the states after the norms.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import HeadLayer, Places
from specchat.engine.heads.mtp_settings import LAYERS, MtpSettings
from specchat.engine.heads.target import Target
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights

ALL = "model.mtp_layers."
PREFIX = f"{ALL}0."


class MtpHead(FeatureHead):
    """Keys, each after "model.mtp_layers.0.": those of a layer of the target, "input_proj.weight" and the norms
    "hidden_layernorm", "token_layernorm" and "final_layernorm"."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights, from among the target's own where these files are the target's.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = MtpSettings.read(files, model.config)
        c = given.layer
        with Weights(files, model.device) as weights:
            _agree(files, weights)

            def norm(name: str) -> RMSNorm:
                return RMSNorm(weights.get(f"{PREFIX}{name}_layernorm.weight", c.hidden), c.norm_eps)

            self._of_state, self._of_token, self._before, self._final = map(norm, ("hidden", "token", "input", "final"))
            self._joined = Linear(weights.get(f"{PREFIX}input_proj.weight", c.hidden, 2 * c.hidden), drafting=True)
            self._layer = HeadLayer(weights, PREFIX, c, c.hidden, model)
            super().__init__(target, weights.count(PREFIX), c.hidden)
        self._normed = given.normed
        self._last = model.config.layers
        model.record_states([self._last])

    @property
    def looked_at(self) -> Sequence[int]:
        return (self._last,)

    def feature(self, states: Tensor) -> Tensor:
        return self.target.model.normed(states) if self._normed else states

    def step(self, embedded: Tensor, features: Tensor, at: Places) -> Tensor:
        e = self._of_token(embedded)
        x = self._joined(torch.cat([self._of_state(features), e], -1))
        return self._layer(self._before(x), x, at)

    def fed_on(self, hidden: Tensor) -> Tensor:
        return self._final(hidden) if self._normed else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.model.projected(self._final(hidden))

    def memory(self) -> int:
        return self._joined.memory() + self._layer.memory() + 4 * self._made.numel()


def _agree(files: HeadFiles, weights: Weights) -> None:
    """Check that the layer is there, and no other.

    Raises:
        ModelError: it is not.
    """
    if not weights.count(PREFIX):
        raise ModelError(
            f"{files.folder} holds no layer for multi-token prediction ({PREFIX}*): this copy was made without it, "
            "or is of a target that has none. Take the checkpoint as it was published."
        )
    if weights.count(ALL) != weights.count(PREFIX):
        raise ModelError(
            f"{files.folder} holds more layers for multi-token prediction than config.json tells of ({LAYERS})."
        )
