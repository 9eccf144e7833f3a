"""config.json of targets with a layer for multi-token prediction. The app reads it too, so torch stays out of here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, checked, shown
from specchat.engine.heads.settings import Given, layer_of
from specchat.engine.model.config import ModelConfig

LAYERS = "num_nextn_predict_layers"


class _Keys(Foreign):
    num_nextn_predict_layers: int = Field(1, description="a number of layers")
    num_speculative_steps: int | None = Field(None, description="a whole number")


def told_of(settings: Mapping[str, Any]) -> bool:
    """Whether these settings of a target tell of layers for multi-token prediction."""
    return settings.get(LAYERS) not in (None, 0, False)


@dataclass(frozen=True)
class MtpSettings:
    """How the layer, of shape `layer`, is to be run.

    `normed` says that its states are those after a norm, as FastMTP's are (Cai et al. 2025): the target's after the
    final one, its own after its last.
    """

    layer: ModelConfig
    normed: bool

    @classmethod
    def read(cls, files: Given, target: ModelConfig) -> "MtpSettings":
        """From `files`, which are `target`'s own or of its shape.

        Raises:
            ModelError: a key is missing or wrong, they are of another target, or ask for what is not run.
        """
        raw, path = files.settings, files.folder / "config.json"
        if "speculators_model_type" in raw:
            raise ModelError(
                f"{path} is of speculators, whose MTP layers are not run: they take token and state in another order."
            )
        known = checked(_Keys, raw, str(path))
        if known.num_nextn_predict_layers != 1:
            raise ModelError(
                f"{path}: {LAYERS} is {shown(known.num_nextn_predict_layers)}, and only one such layer is run."
            )
        shape = layer_of(files, raw)
        if (shape.vocab, shape.hidden) != (target.vocab, target.hidden):
            raise ModelError(
                f"{path}: this layer is for another target, of {shape.vocab} tokens and a hidden size of "
                f"{shape.hidden}; this one has {target.vocab} and {target.hidden}."
            )
        return cls(shape.cut(1), normed=bool(known.num_speculative_steps))

    @property
    def values(self) -> int:
        """How many weights the layer has."""
        c = self.layer
        return c.layer_parameters + 2 * c.hidden * c.hidden + 3 * c.hidden
