"""Layers for multi-token prediction that targets bring along: their layouts and settings. No torch here."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pydantic import Field

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, checked, shown
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import HeadRecipe, full_attention, renamed
from specchat.engine.heads.settings import on_features
from specchat.engine.recipe import Attention, Layer
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig, parse_config, with_text


class MtpLayout(NamedTuple):
    """Names of the tensors, and how state and token are joined.

    In the names stands {0} for the number of the target's layers, and {1} for the next one.

    Attributes:
        told: key of config.json for the number of such layers.
        prefix: begins all names.
        layer: begins those of the layer.
        further: begins those of a further layer, which is not run.
        joined: matrix of state and token side by side.
        of_state, of_token, final: norms before and after.
        token_first: the token's half comes first.
        normed: it reads states after the final norm, the target's or its own. None: if `num_speculative_steps` is set,
            as FastMTP does (Cai et al. 2025).
    """

    told: str
    prefix: str
    layer: str
    further: str
    joined: str
    of_state: str
    of_token: str
    final: str
    token_first: bool
    normed: bool | None

    def of(self, layers: int) -> "MtpLayout":
        """The layout for a target of `layers` layers."""
        named: list[Any] = [one.format(layers, layers + 1) if isinstance(one, str) else one for one in self]
        return MtpLayout(*named)


MIMO = MtpLayout(
    told="num_nextn_predict_layers",
    prefix="model.mtp_layers.",
    layer="model.mtp_layers.0",
    further="model.mtp_layers.1.",
    joined="model.mtp_layers.0.input_proj",
    of_state="model.mtp_layers.0.hidden_layernorm",
    of_token="model.mtp_layers.0.token_layernorm",
    final="model.mtp_layers.0.final_layernorm",
    token_first=False,
    normed=None,
)
QWEN = MtpLayout(
    told="mtp_num_hidden_layers",
    prefix="mtp.",
    layer="mtp.layers.0",
    further="mtp.layers.1.",
    joined="mtp.fc",
    of_state="mtp.pre_fc_norm_hidden",
    of_token="mtp.pre_fc_norm_embedding",
    final="mtp.norm",
    token_first=True,
    normed=True,
)
GLM = MtpLayout(
    told="num_nextn_predict_layers",
    prefix="model.layers.{0}.",
    layer="model.layers.{0}",
    further="model.layers.{1}.",
    joined="model.layers.{0}.eh_proj",
    of_state="model.layers.{0}.hnorm",
    of_token="model.layers.{0}.enorm",
    final="model.layers.{0}.shared_head.norm",
    token_first=True,
    normed=True,
)
LAYOUTS = {layout.prefix: layout for layout in (MIMO, QWEN, GLM)}
"""By the beginnings of their names, as families have them."""


class MtpKeys(Foreign):
    num_nextn_predict_layers: int | None = Field(None, description="a number of layers")
    mtp_num_hidden_layers: int | None = Field(None, description="a number of layers")
    num_speculative_steps: int | None = Field(None, description="a whole number")


def has_mtp(settings: dict[str, Any]) -> bool:
    """True if a target of these settings should hold layers for multi-token prediction."""
    whole = with_text(settings)
    told = [whole[layout.told] for layout in LAYOUTS.values() if whole.get(layout.told) is not None]
    # Checkpoints of Qwen often lack the key, and hold the layer all the same.
    return any(told) if told else _layout(str(whole.get("model_type"))) is QWEN


@dataclass(frozen=True)
class MtpSettings:
    """Settings of a layer for multi-token prediction.

    Attributes:
        shape: the target's, and that of the whole model that the files may hold.
        layer: the layer, by the names of its layout.
        normed: as in `MtpLayout`.
        rows: rows of the target's output matrix that it holds itself: those of a draft vocabulary.
    """

    shape: ModelConfig
    layout: MtpLayout
    layer: Layer
    normed: bool
    rows: int = 0

    @classmethod
    def read(cls, files: HeadFiles, target: ModelConfig) -> "MtpSettings":
        """Parse the settings of `files`, which are `target`'s own or of its shape.

        Raises:
            ModelError: a key is missing, wrong or unsupported, or the files are for another target.
        """
        raw, path = files.settings, files.folder / "config.json"
        if "speculators_model_type" in raw:
            raise ModelError(
                f"{path} is of speculators, whose MTP layers are not run: they take token and state in another order."
            )
        shape = parse_config(files.folder, raw)
        layout = _layout(shape.family)
        if layout is None:
            names = ", ".join(kind for kind in families.known() if _layout(kind))
            raise ModelError(f"{path}: layers for multi-token prediction are read of {names}, not of {shape.family}.")
        known = checked(MtpKeys, with_text(raw), str(path))
        count = getattr(known, layout.told)
        if count not in (None, 1):
            raise ModelError(f"{path}: {layout.told} is {shown(count)}, and only one such layer is run.")
        if (shape.vocab, shape.hidden) != (target.vocab, target.hidden):
            raise ModelError(
                f"{path}: this layer is for another target, of {shape.vocab} tokens and a hidden size of "
                f"{shape.hidden}; this one has {target.vocab} and {target.hidden}."
            )
        # The first layers of some targets have no experts, and such a layer has.
        layers = reversed([*enumerate(shape.recipe.layers)])
        number, like = next((one for one in layers if isinstance(one[1].mixer, Attention)), (0, None))
        if like is None:
            raise ModelError(f"{path}: no layer of the target has attention, as one for multi-token prediction has.")
        layout = layout.of(shape.layers)
        layer = renamed(full_attention(like), f"model.layers.{number}.", f"{layout.layer}.")
        normed = bool(known.num_speculative_steps) if layout.normed is None else layout.normed
        return cls(shape, layout, layer, normed, files.rows)

    @property
    def of_one(self) -> ModelConfig:
        """The shape of a model of this layer alone."""
        return replace(self.shape, recipe=replace(self.shape.recipe, layers=(self.layer,)))

    def recipe(self, target: ModelConfig) -> HeadRecipe:
        """Recipe of the layer and the matrix that joins state and token. Its files may hold the whole target."""
        held = self.parameters + self.rows * self.shape.hidden
        return replace(on_features(self.of_one, (self.layer,), (target.layers,)), parameters=held)

    @property
    def parameters(self) -> int:
        """Number of weights, without tables that the files may hold once more."""
        hidden = self.shape.hidden
        return self.layer.parameters + 2 * hidden * hidden + 3 * hidden


def mtp_recipe(files: HeadFiles, target: ModelConfig, _: Head) -> HeadRecipe:
    """Recipe of a layer for multi-token prediction, as `MtpSettings.read`."""
    return MtpSettings.read(files, target).recipe(target)


def _layout(model_type: str) -> MtpLayout | None:
    """The layout of a family's layer; None where none is read."""
    family = families.known().get(model_type)
    return LAYOUTS.get(family.mtp) if family else None
