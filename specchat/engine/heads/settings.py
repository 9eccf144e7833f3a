"""config.json of EAGLE heads in the layouts that are published. The app reads it too, so torch stays out of here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, MaybeCount, Switch, Table, checked, shown
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.strategy import Head

USUAL = ("use_aux_hidden_state", "use_input_layernorm_in_first_layer", "use_last_layernorm")
"""ModelOpt's switches, which EAGLE-3 has all on."""
MOST_LAYER_IDS = 1024


class _Parts(Foreign):
    """What the keys of a head are spread over."""

    speculators_model_type: str | None = None
    eagle_config: Table
    transformer_layer_config: dict[str, Any] | None = Field(None, description="an object")


class _Keys(Foreign):
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


class Given(Protocol):
    """A folder with heads, and `settings`, those of its config.json."""

    @property
    def folder(self) -> Path: ...

    @property
    def settings(self) -> dict[str, Any]: ...


def layer_of(files: Given, settings: dict[str, Any]) -> ModelConfig:
    """The shapes of a head's layers, which are alike.

    Raises:
        ModelError: a key is missing or wrong.
    """
    return parse_config(files.folder, {"model_type": "llama", **settings})


@dataclass(frozen=True)
class Eagle3Settings:
    """How an EAGLE-3 or P-EAGLE head is to be run.

    `states` are the numbers of layers after which the target's states are taken. The head scores `proposes` tokens.
    `mask` is the token that P-EAGLE has in the place of those it does not know.
    """

    layer: ModelConfig
    states: tuple[int, ...]
    proposes: int
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    mask: int | None

    @classmethod
    def read(cls, files: Given, target: ModelConfig, kind: Head = "eagle3") -> "Eagle3Settings":
        """From `files` of `kind`, for `target`.

        Raises:
            ModelError: a key is missing, wrong, or asks for what is not known.
        """
        raw, path = files.settings, str(files.folder / "config.json")
        parts = checked(_Parts, raw, path)
        told = parts.speculators_model_type or kind
        if told != kind:
            raise ModelError(f"{path}: speculators_model_type is {shown(told)}, and these should be {kind} heads.")
        known = checked(_Keys, {**parts.eagle_config, **raw}, path)
        for key in USUAL:
            if not getattr(known, key):
                raise ModelError(f"{path}: {key} is not true, and no other EAGLE-3 head is run.")
        before = known.norm_before_residual
        layer = layer_of(files, raw if parts.transformer_layer_config is None else parts.transformer_layer_config)
        proposes = known.draft_vocab_size or layer.vocab
        if proposes > target.vocab:
            raise ModelError(f"{path}: draft_vocab_size is {proposes}, and the target has {target.vocab}.")
        return cls(
            layer=layer,
            states=_states(known.eagle_aux_hidden_state_layer_ids, target.layers, path),
            proposes=proposes,
            # EAGLE-3 heads of speculators that lack it were trained with it, others without.
            norm_before_residual=parts.speculators_model_type == "eagle3" if before is None else before,
            norm_before_fc=known.norm_before_fc,
            fc_norm=known.fc_norm,
            norm_output=known.norm_output,
            mask=_mask(known, target.vocab, path),
        )


def _mask(known: _Keys, vocab: int, path: str) -> int | None:
    """By the names that trainers and servers have for it."""
    for key in ("mask_token_id", "ptd_token_id", "pard_token"):
        if (token := getattr(known, key)) is not None:
            if not 0 <= token < vocab:
                raise ModelError(f"{path}: {key} is {shown(token)}, and the target has {vocab} tokens.")
            return int(token)
    return None


def _states(given: list[int] | None, layers: int, path: str) -> tuple[int, ...]:
    """After how many layers states are taken: what is `given`, or the paper's low, middle and high ones."""
    if given is None:
        given = [2, layers // 2, layers - 3]
    if not given or not all(0 <= i <= layers for i in given):
        raise ModelError(
            f"{path}: eagle_aux_hidden_state_layer_ids is {shown(given)}, and the target has {layers} layers."
        )
    return tuple(given)
