"""config.json of EAGLE heads in the layouts that are published. The app reads it too, so torch stays out of here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from specchat.engine.errors import ModelError
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.strategies import Head

USUAL = {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True}
"""ModelOpt's switches, as EAGLE-3 has them."""


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
        raw, path = files.settings, files.folder / "config.json"
        told = raw.get("speculators_model_type", kind)
        if told != kind:
            raise ModelError(f"{path}: speculators_model_type is {str(told)[:40]!r}, and these should be {kind} heads.")
        nested = raw.get("eagle_config") or {}
        inner = raw.get("transformer_layer_config", raw)
        if not isinstance(nested, dict) or not isinstance(inner, dict):
            raise ModelError(f"{path}: eagle_config or transformer_layer_config is not an object.")
        known = {**nested, **raw}
        for key, usual in USUAL.items():
            if known.get(key, usual) != usual:
                raise ModelError(f"{path}: {key} is not {str(usual).lower()}, and no other EAGLE-3 head is run.")
        before = known.get("norm_before_residual")
        layer = layer_of(files, inner)
        proposes = known.get("draft_vocab_size") or layer.vocab
        if not isinstance(proposes, int) or not 0 < proposes <= target.vocab:
            raise ModelError(f"{path}: draft_vocab_size is {str(proposes)[:40]}, and the target has {target.vocab}.")
        return cls(
            layer=layer,
            states=_states(known.get("eagle_aux_hidden_state_layer_ids"), target.layers, str(path)),
            proposes=proposes,
            # EAGLE-3 heads of speculators that lack it were trained with it, others without.
            norm_before_residual=raw.get("speculators_model_type") == "eagle3" if before is None else bool(before),
            norm_before_fc=bool(known.get("norm_before_fc")),
            fc_norm=bool(known.get("fc_norm")),
            norm_output=bool(known.get("norm_output")),
            mask=_mask(known, target.vocab, str(path)),
        )


def _mask(known: dict[str, Any], vocab: int, path: str) -> int | None:
    """By the names that trainers and servers have for it."""
    for key in ("mask_token_id", "ptd_token_id", "pard_token"):
        if (token := known.get(key)) is not None:
            if not isinstance(token, int) or not 0 <= token < vocab:
                raise ModelError(f"{path}: {key} is {str(token)[:40]}, and the target has {vocab} tokens.")
            return token
    return None


def _states(given: object, layers: int, path: str) -> tuple[int, ...]:
    """After how many layers states are taken: what is `given`, or the paper's low, middle and high ones."""
    if given is None:
        given = [2, layers // 2, layers - 3]
    if not isinstance(given, list) or not given or not all(isinstance(i, int) and 0 <= i <= layers for i in given):
        raise ModelError(
            f"{path}: eagle_aux_hidden_state_layer_ids is {str(given)[:60]}, and the target has {layers} layers."
        )
    return tuple(given)
