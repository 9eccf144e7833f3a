"""Layers for multi-token prediction that targets bring along: their layouts and settings. No torch here."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import shown
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import full_attention, renamed
from specchat.engine.heads.settings import HeadSettings, on_features, read_keys
from specchat.engine.recipe import Attention, Matrix, Norm
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


def has_mtp(settings: dict[str, Any]) -> bool:
    """True if a target of these settings should hold layers for multi-token prediction."""
    whole = with_text(settings)
    told = [whole[layout.told] for layout in LAYOUTS.values() if whole.get(layout.told) is not None]
    # Checkpoints of Qwen often lack the key, and hold the layer all the same.
    return any(told) if told else _layout(str(whole.get("model_type"))) is QWEN


@dataclass(frozen=True)
class MtpSettings(HeadSettings):
    """Settings of a layer for multi-token prediction; its files may hold the whole target, of the same `shape`.

    Attributes:
        normed: as in `MtpLayout`.
        parameters: number of weights, without tables that the files may hold once more.
    """

    layout: MtpLayout = MIMO
    normed: bool = False
    parameters: int = 0

    @property
    def norms(self) -> dict[str, Norm]:
        """The norms of state and token and the last one, by the names that GGUF files have for them."""
        named = {"hnorm": self.layout.of_state, "enorm": self.layout.of_token, "shared_head_norm": self.layout.final}
        return {key: replace(self.shape.recipe.norm, name=name) for key, name in named.items()}

    @property
    def joined(self) -> Matrix:
        """The product of state and token side by side."""
        return Matrix((self.layout.joined,), (self.shape.hidden,), 2 * self.shape.hidden)

    @property
    def of_one(self) -> ModelConfig:
        """The shape of a model of this layer alone."""
        return replace(self.shape, recipe=replace(self.shape.recipe, layers=self.recipe.layers))


def mtp(files: HeadFiles, target: ModelConfig, family: Head) -> MtpSettings:
    """Settings of a layer for multi-token prediction, by files which are `target`'s own or of its shape.

    Raises:
        ModelError: a key is missing, wrong or unsupported, or the files are for another target.
    """
    raw = files.settings
    if "speculators_model_type" in raw:
        raise ModelError(
            f"{files.folder / 'config.json'} is of speculators, whose MTP layers are not run: they take token and "
            "state in another order."
        )
    shape = parse_config(files.folder, raw)
    _, keys = read_keys(files, with_text(raw), family)
    path = keys.path
    layout = _layout(shape.family)
    if layout is None:
        names = ", ".join(kind for kind in families.known() if _layout(kind))
        raise ModelError(f"{path}: layers for multi-token prediction are read of {names}, not of {shape.family}.")
    count = getattr(keys, layout.told)
    if count not in (None, 1):
        raise ModelError(f"{path}: {layout.told} is {shown(count)}, and only one such layer is run.")
    hidden = shape.hidden
    if (shape.vocab, hidden) != (target.vocab, target.hidden):
        raise ModelError(
            f"{path}: this layer is for another target, of {shape.vocab} tokens and a hidden size of {hidden}; this "
            f"one has {target.vocab} and {target.hidden}."
        )
    # The first layers of some targets have no experts, and such a layer has.
    found = reversed([*enumerate(shape.recipe.layers)])
    number, like = next((one for one in found if isinstance(one[1].mixer, Attention)), (0, None))
    if like is None:
        raise ModelError(f"{path}: no layer of the target has attention, as one for multi-token prediction has.")
    layout = layout.of(shape.layers)
    layer = renamed(full_attention(like), f"model.layers.{number}.", f"{layout.layer}.")
    normed = bool(keys.num_speculative_steps) if layout.normed is None else layout.normed
    parameters = layer.parameters + 2 * hidden * hidden + 3 * hidden
    of_one = replace(shape, recipe=replace(shape.recipe, layers=(layer,)))
    recipe = replace(on_features(of_one, (layer,), (target.layers,)), parameters=parameters + files.rows * hidden)
    return MtpSettings(shape, recipe, keys, layout=layout, normed=normed, parameters=parameters)


def _layout(model_type: str) -> MtpLayout | None:
    """The layout of a family's layer; None where none is read."""
    family = families.known().get(model_type)
    return LAYOUTS.get(family.mtp) if family else None
