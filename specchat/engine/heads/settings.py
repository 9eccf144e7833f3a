"""config.json of EAGLE heads in the layouts that are published, and what must fit the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.weights import Weights
from specchat.engine.strategies import Head

USUAL = {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True}
"""ModelOpt's switches, as EAGLE-3 has them."""


def layer_of(files: HeadFiles, settings: dict[str, Any]) -> ModelConfig:
    """The shapes of a head's layers, which are alike.

    Raises:
        ModelError: a key is missing or wrong.
    """
    return parse_config(files.folder, {"model_type": "llama", **settings})


def fits_target(files: HeadFiles, weights: Weights, target: int, hidden: int, inputs: int) -> None:
    """Check by the product that takes its states that a head is for a target of this hidden size.

    Raises:
        ModelError: it is not.
    """
    if (shape := weights.shape("fc.weight")) and shape != (hidden, inputs):
        raise ModelError(
            f"{files.folder}: this head is for another target or its config.json for another head: tensor fc.weight "
            f"has shape {list(shape)}, and with this target, whose hidden size is {target}, it is {[hidden, inputs]}."
        )


def proposed(weights: Weights, rows: int, vocab: int) -> Tensor:
    """The tokens int64 [rows] that a head with so many rows may propose.

    Raises:
        ModelError: the head's map leads to tokens that there are not, or contradicts itself.
    """
    tokens = torch.arange(rows)
    if "d2t" in weights:
        tokens = tokens + weights.integers("d2t", rows)
    elif rows != vocab:
        raise ModelError(f"{weights.folder}: the head proposes {rows} of {vocab} tokens, and tensor d2t is missing.")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocab:
        wrong = least if least < 0 else most
        raise ModelError(f"{weights.folder}: tensor d2t leads to token {wrong}, and the target has {vocab}.")
    if len(tokens.unique()) != rows:
        raise ModelError(f"{weights.folder}: tensor d2t leads to a token twice.")
    if "t2d" in weights:
        known = weights.integers("t2d", vocab)
        if int(known.sum()) != rows or not bool(known[tokens].all()):
            raise ModelError(f"{weights.folder}: tensors d2t and t2d are about different tokens.")
    return tokens


class Embedding:
    """The head's own embeddings, or the target's where it has none."""

    def __init__(self, weights: Weights, target: CachedDecoder, hidden: int) -> None:
        """Read them.

        Raises:
            ModelError: they are of another shape.
        """
        name, self._target = "embed_tokens.weight", target
        self._own = weights.get(name, target.vocab, hidden) if name in weights else None
        if self._own is None and hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name} is missing, and the target's has another size.")

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """float32 [len(tokens), hidden]."""
        if self._own is None:
            return self._target.embedded(tokens)
        return embedding(torch.tensor(tokens), self._own)

    def memory(self) -> int:
        """Bytes held."""
        return 0 if self._own is None else 4 * self._own.numel()


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
    def read(cls, files: HeadFiles, target: ModelConfig, kind: Head = "eagle3") -> "Eagle3Settings":
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
