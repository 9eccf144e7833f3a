"""config.json of heads that continue from features, in the published layouts. The app reads it too: no torch here."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, MaybeCount, Switch, Table, checked, shown
from specchat.engine.heads.recipe import Given, HeadRecipe, compiles, joined, layers, renamed, shape_by
from specchat.engine.recipe import Layer
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig

USUAL = ("use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm")
"""ModelOpt's switches, all on for EAGLE-3."""
MOST_LAYER_IDS = 1024


class Eagle3Parts(Foreign):
    """The places where a head's config.json keeps its keys."""

    speculators_model_type: str | None = None
    eagle_config: Table
    transformer_layer_config: dict[str, Any] | None = Field(None, description="an object")


class Eagle3Keys(Foreign):
    use_aux_hidden_state: bool = True
    use_input_layernorm_in_first_layer: bool = True
    use_last_layernorm: bool = True
    draft_vocab_size: MaybeCount = None
    eagle_aux_hidden_state_layer_ids: list[int] | None = Field(
        None, max_length=MOST_LAYER_IDS, description="a list of layers"
    )
    norm_before_residual: bool | None = Field(None, description="true or false")
    norm_before_fc: Switch = False
    fc_norm: Switch = False
    norm_output: Switch = False
    mask_token_id: int | None = Field(None, description="a token's number")
    ptd_token_id: int | None = Field(None, description="a token's number")
    pard_token: int | None = Field(None, description="a token's number")


def shape_of(files: Given, settings: dict[str, Any]) -> ModelConfig:
    """Shape of a head's layers, all alike.

    Raises:
        ModelError: a key is missing or wrong, or no such layers are run.
    """
    return shape_by(files, families.plain().model_type, settings)


def on_features(
    shape: ModelConfig, own: tuple[Layer, ...], aux_layers: tuple[int, ...], scoring: int = 0
) -> HeadRecipe:
    """Recipe of a head that passes features on; `scoring` is the size of its compiled chain's output matrix."""
    doubled = sum(layer.parameters for layer in own) + scoring if compiles(shape) else 0
    return HeadRecipe(own, aux_layers, shape.hidden, doubled)


def eagle(files: Given, target: ModelConfig) -> tuple[ModelConfig, HeadRecipe]:
    """The shape and the recipe of an EAGLE head: one layer, without a norm before its attention.

    Raises:
        ModelError: a key is missing or wrong, or there are more layers.
    """
    shape = shape_of(files, files.settings)
    if shape.layers != 1:
        raise ModelError(
            f"{files.folder}: the head has {shape.layers} layers (num_hidden_layers), and EAGLE has one. "
            "Name the folder under heads.eagle3 if it is of EAGLE-3."
        )
    return shape, on_features(shape, (joined(layers(shape.recipe)[0], shape.hidden),), (target.layers,))


@dataclass(frozen=True)
class Eagle3Settings:
    """Settings of an EAGLE-3 or P-EAGLE head.

    `aux_layers` are layer counts after which the target's hidden states are taken. The head scores `proposes` tokens.
    `mask` is P-EAGLE's token for positions not yet known.
    """

    shape: ModelConfig
    aux_layers: tuple[int, ...]
    proposes: int
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    mask: int | None

    @classmethod
    def read(cls, files: Given, target: ModelConfig, kind: Head = "eagle3") -> "Eagle3Settings":
        """Parse the settings of `files`, a head of `kind`, for `target`.

        Raises:
            ModelError: a key is missing, wrong or unsupported.
        """
        raw, path = files.settings, str(files.folder / "config.json")
        parts = checked(Eagle3Parts, raw, path)
        told = parts.speculators_model_type or kind
        if told != kind:
            raise ModelError(f"{path}: speculators_model_type is {shown(told)}, and these should be {kind} heads.")
        known = checked(Eagle3Keys, {**parts.eagle_config, **raw}, path)
        for key in USUAL:
            if not getattr(known, key):
                raise ModelError(f"{path}: {key} is not true, and no other EAGLE-3 head is run.")
        before = known.norm_before_residual
        shape = shape_of(files, raw if parts.transformer_layer_config is None else parts.transformer_layer_config)
        proposes = known.draft_vocab_size or shape.vocab
        if proposes > target.vocab:
            raise ModelError(f"{path}: draft_vocab_size is {proposes}, and the target has {target.vocab}.")
        return cls(
            shape=shape,
            aux_layers=_aux_layers(known.eagle_aux_hidden_state_layer_ids, target.layers, path),
            proposes=proposes,
            # Without the key, EAGLE-3 heads of speculators were trained with it, others without.
            norm_before_residual=parts.speculators_model_type == "eagle3" if before is None else before,
            norm_before_fc=known.norm_before_fc,
            fc_norm=known.fc_norm,
            norm_output=known.norm_output,
            mask=_mask(known, target.vocab, path),
        )

    def recipe(self, target: ModelConfig, first: str = "layers.0.") -> HeadRecipe:
        """Recipe of the head, whose first layer, named `first`, takes token and feature side by side."""
        head, *rest = layers(self.shape.recipe)
        head = renamed(joined(head, 2 * self.shape.hidden), "layers.0.", first)
        # A compiled chain scores all tokens.
        scoring = target.vocab * self.shape.hidden if self.mask is None else 0
        return on_features(self.shape, (head, *rest), self.aux_layers, scoring)


def eagle_recipe(files: Given, target: ModelConfig, _: Head) -> HeadRecipe:
    """Recipe of an EAGLE head, as `eagle`."""
    return eagle(files, target)[1]


def eagle3_recipe(files: Given, target: ModelConfig, family: Head) -> HeadRecipe:
    """Recipe of an EAGLE-3 or P-EAGLE head, as `Eagle3Settings.read`."""
    return Eagle3Settings.read(files, target, family).recipe(target)


def _mask(known: Eagle3Keys, vocab: int, path: str) -> int | None:
    """Mask token, under any of the names that trainers and servers use."""
    for key in ("mask_token_id", "ptd_token_id", "pard_token"):
        if (token := getattr(known, key)) is not None:
            if not 0 <= token < vocab:
                raise ModelError(f"{path}: {key} is {shown(token)}, and the target has {vocab} tokens.")
            return int(token)
    return None


def _aux_layers(given: list[int] | None, layers: int, path: str) -> tuple[int, ...]:
    """Layer counts after which hidden states are taken: `given`, or the paper's low, middle and high ones."""
    if given is None:
        given = [2, layers // 2, layers - 3]
    if not given or not all(0 <= i <= layers for i in given):
        raise ModelError(
            f"{path}: eagle_aux_hidden_state_layer_ids is {shown(given)}, and the target has {layers} layers."
        )
    return tuple(given)
