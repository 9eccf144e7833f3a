"""config.json of trained heads: one reader of all keys, and the settings of heads that continue from features.

The app imports this module too, so it does not import torch.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Count, Foreign, MaybeCount, Switch, Table, checked, shown
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import HeadRecipe, compiles, joined, layers, shape_of
from specchat.engine.recipe import Layer
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig

ALIASES = {
    "mask_token_id": ("ptd_token_id", "pard_token"),
    "block_size": ("xpress_block_size",),
}
"""Further names that trainers and servers use for a key."""
USUAL = ("use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm")
"""ModelOpt's switches, all on for EAGLE-3."""
_TOKEN, _SWITCH, _NUMBER = "a token's number", "true or false", "a whole number"
_LAYERS = "a list of layers"


class HeadParts(Foreign):
    """The places where a head's config.json keeps its keys."""

    speculators_model_type: str | None = None
    model_type: str | None = None
    eagle_config: Table
    dflash_config: Table
    transformer_layer_config: dict[str, Any] | None = Field(None, description="an object")


class HeadKeys(Foreign):
    """Keys of all families, besides those of their layers, in the config.json `path`."""

    path: str
    speculators_model_type: str | None = None
    draft_vocab_size: MaybeCount = None
    mask_token_id: int | None = Field(None, description=_TOKEN)
    # EAGLE-3 and P-EAGLE
    use_aux_hidden_state: bool = True
    use_input_layernorm_in_first_layer: bool = True
    use_last_layernorm: bool = True
    eagle_aux_hidden_state_layer_ids: list[int] | None = Field(None, max_length=1024, description=_LAYERS)
    norm_before_residual: bool | None = Field(None, description=_SWITCH)
    norm_before_fc: Switch = False
    fc_norm: Switch = False
    norm_output: Switch = False
    # heads that draft a block
    num_target_layers: MaybeCount = None
    block_size: MaybeCount = None
    sample_from_anchor: bool | None = Field(None, description=_SWITCH)
    aux_hidden_state_layer_ids: list[int] | None = Field(None, max_length=1024, description=_LAYERS)
    target_layer_ids: list[int] | None = Field(None, max_length=1024, description=_LAYERS)
    layer_types: list[str] | None = Field(None, max_length=1024, description="a list of kinds of attention")
    sliding_window: MaybeCount = None
    sliding_window_non_causal: bool | None = Field(None, description=_SWITCH)
    is_causal: bool | None = Field(None, description=_SWITCH)
    conv_kernel_size: MaybeCount = None
    conv_group_size: MaybeCount = None
    selector_rank: MaybeCount = None
    selector_top_k: MaybeCount = None
    markov_rank: int | None = Field(None, description=_NUMBER)
    markov_head_type: str = Field("vanilla", description="a text")
    confidence_head_with_markov: bool = Field(True, description=_SWITCH)
    enable_confidence_head: bool = Field(True, description=_SWITCH)
    xpress_rank: Count = 256
    xpress_mlp_ratio: Count = 2
    xpress_mlp_hidden: MaybeCount = None
    # Medusa
    medusa_num_layers: int = Field(1, ge=0, le=16, description="a number up to 16")
    # layers for multi-token prediction
    num_nextn_predict_layers: int | None = Field(None, description="a number of layers")
    mtp_num_hidden_layers: int | None = Field(None, description="a number of layers")
    num_speculative_steps: int | None = Field(None, description=_NUMBER)
    # heads that attend to the target's KV entries
    backbone_hidden_size: MaybeCount = None
    use_ordered_embeddings: Switch = False
    num_centroids: Count = 2048
    centroid_intermediate_top_k: Count = 32

    def number(self, key: str, least: int, most: int) -> int:
        """Value of `key`.

        Raises:
            ModelError: it is missing, or outside `least` ... `most`.
        """
        value = getattr(self, key)
        if value is None or not least <= value <= most:
            told = "missing" if value is None else shown(value)
            raise ModelError(f"{self.path}: {key} is {told}, not a number from {least} to {most}.")
        return int(value)

    def agree(self, key: str, theirs: int | None, ours: int) -> None:
        """Check a size of the head against the target's.

        Raises:
            ModelError: they differ.
        """
        if theirs != ours:
            raise ModelError(f"{self.path}: this head is for another target: {key} is {theirs}, not {ours}.")


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a head.

    Attributes:
        shape: shape of the layers as those of a model; the target's where heads have none.
        recipe: the layers, each with its attention mask, and the states it reads.
        proposes: number of tokens that the head's own output matrix scores.
    """

    shape: ModelConfig
    recipe: HeadRecipe
    keys: HeadKeys
    proposes: int = 0

    @property
    def norm_before_residual(self) -> bool:
        """Without the key, EAGLE-3 heads of speculators were trained with it, others without."""
        told = self.keys.norm_before_residual
        return self.keys.speculators_model_type == "eagle3" if told is None else told

    @property
    def first(self) -> int:
        """Row that predicts the token after the pending one: 0, or 1 where the pending token's row predicts none."""
        # DeepSpec's settings always name a rank: 0 without biases.
        anchored, told = self.keys.markov_rank is not None, self.keys.sample_from_anchor
        return 0 if (anchored if told is None else told) else 1


def on_features(
    shape: ModelConfig, own: tuple[Layer, ...], aux_layers: tuple[int, ...], scoring: int = 0
) -> HeadRecipe:
    """Recipe of a head that passes features on; `scoring` is the size of its compiled chain's output matrix."""
    doubled = sum(layer.parameters for layer in own) + scoring if compiles(shape) else 0
    return HeadRecipe(own, aux_layers, shape.hidden, doubled)


def medusa(files: HeadFiles, target: ModelConfig, family: Head) -> HeadSettings:
    """Settings of Medusa's heads, which have no layers and use only the target's last hidden state.

    Raises:
        ModelError: a key is wrong.
    """
    _, keys = read_keys(files, files.settings, family)
    return HeadSettings(target, HeadRecipe((), (target.layers,)), keys)


def eagle(files: HeadFiles, target: ModelConfig, family: Head) -> HeadSettings:
    """Settings of an EAGLE head: one layer, without a norm before its attention.

    Raises:
        ModelError: a key is missing or wrong, or there are more layers.
    """
    _, keys = read_keys(files, files.settings, family)
    shape = shape_of(files, files.settings)
    if shape.layers != 1:
        raise ModelError(
            f"{files.folder}: the head has {shape.layers} layers (num_hidden_layers), and EAGLE has one. "
            "Name the folder under heads.eagle3 if it is of EAGLE-3."
        )
    own = joined(layers(shape.recipe)[0], shape.hidden)
    return HeadSettings(shape, on_features(shape, (own,), (target.layers,)), keys)


def eagle3(files: HeadFiles, target: ModelConfig, family: Head) -> HeadSettings:
    """Settings of an EAGLE-3 or P-EAGLE head, whose first layer takes token and feature side by side.

    Raises:
        ModelError: a key is missing, wrong or unsupported.
    """
    inner, keys = read_keys(files, files.settings, family)
    for key in USUAL:
        if not getattr(keys, key):
            raise ModelError(f"{keys.path}: {key} is not true, and no other EAGLE-3 head is run.")
    shape = shape_of(files, inner)
    if keys.mask_token_id is not None:
        keys.number("mask_token_id", 0, target.vocab - 1)
    given = keys.eagle_aux_hidden_state_layer_ids
    aux_layers = tuple([2, target.layers // 2, target.layers - 3] if given is None else given)  # the paper's
    if not aux_layers or not all(0 <= i <= target.layers for i in aux_layers):
        told = shown([*aux_layers])
        raise ModelError(
            f"{keys.path}: eagle_aux_hidden_state_layer_ids is {told}, and the target has {target.layers} layers."
        )
    first, *rest = layers(shape.recipe)
    # A compiled chain scores all tokens.
    scoring = target.vocab * shape.hidden if keys.mask_token_id is None else 0
    recipe = on_features(shape, (joined(first, 2 * shape.hidden), *rest), aux_layers, scoring)
    return HeadSettings(shape, recipe, keys, proposing(keys, shape, target))


def read_keys(files: HeadFiles, raw: dict[str, Any], family: Head) -> tuple[dict[str, Any], HeadKeys]:
    """Read the settings `raw` of a config.json: those of the layers, and all other keys.

    Raises:
        ModelError: a key has another type, or the settings are of another family.
    """
    path = str(files.folder / "config.json")
    parts = checked(HeadParts, raw, path)
    if (kind := parts.speculators_model_type or family) != family:
        raise ModelError(f"{path}: speculators_model_type is {shown(kind)}, not {family}.")
    inner = raw if parts.transformer_layer_config is None else parts.transformer_layer_config
    whole = {**inner, **parts.eagle_config, **raw, **parts.dflash_config, "path": path}
    for key, others in ALIASES.items():
        named = (whole.get(name) for name in (key, *others))
        whole[key] = next((value for value in named if value is not None), None)
    return inner, checked(HeadKeys, whole, path)


def proposing(keys: HeadKeys, shape: ModelConfig, target: ModelConfig) -> int:
    """Number of tokens that the head's own output matrix scores."""
    own = keys.model_copy(update={"draft_vocab_size": keys.draft_vocab_size or shape.vocab})
    return own.number("draft_vocab_size", 1, target.vocab)
