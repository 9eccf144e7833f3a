"""config.json of the heads that draft a block in one pass, in the layouts of z-lab, DeepSpec and speculators.

The app imports this module too, so it does not import torch.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, MaybeCount, Table, checked, shown
from specchat.engine.heads.recipe import Given, HeadRecipe, layers, shape_by
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig

MOST_LAYERS, MOST_BLOCK, MOST_RANK = 64, 64, 1 << 14
UNKNOWN = ("input_embedding_scale", "output_multiplier", "logit_scale", "final_logit_softcapping")
"""Keys of heads for other kinds of targets, which change the result."""


ASSISTANT = "_assistant"
"""End of the model_type of such heads as transformers writes them."""
DEFAULTS = {"block_size": 16, "mask_token_id": 201818, "target_layer_ids": [1, 13, 25, 37, 49]}
"""Defaults of keys that their files may omit."""


class BlockParts(Foreign):
    """The places where a head's config.json keeps its keys."""

    speculators_model_type: str | None = None
    model_type: str | None = None
    dflash_config: Table
    transformer_layer_config: dict[str, Any] | None = Field(None, description="an object")


_SWITCH = "true or false"
_LAYERS = "a list of layers"


class BlockKeys(Foreign):
    """Keys that all these heads have in common."""

    num_target_layers: MaybeCount = None
    draft_vocab_size: MaybeCount = None
    block_size: MaybeCount = None
    mask_token_id: int | None = Field(None, description="a token's number")
    sample_from_anchor: bool | None = Field(None, description=_SWITCH)
    markov_rank: int | None = Field(None, description="a whole number")
    selector_rank: MaybeCount = None
    conv_kernel_size: MaybeCount = None
    conv_group_size: MaybeCount = None
    aux_hidden_state_layer_ids: list[int] | None = Field(None, max_length=1024, description=_LAYERS)
    target_layer_ids: list[int] | None = Field(None, max_length=1024, description=_LAYERS)
    layer_types: list[str] | None = Field(None, max_length=1024, description="a list of kinds of attention")
    sliding_window: MaybeCount = None
    sliding_window_non_causal: bool | None = Field(None, description=_SWITCH)
    is_causal: bool | None = Field(None, description=_SWITCH)


@dataclass(frozen=True)
class BlockSettings:
    """Settings common to all heads that draft a block.

    Attributes:
        shape: shape of the layers, all alike.
        recipe: the layers, each with its attention mask.
        proposes: number of tokens that the head's own output matrix scores.
        mask: token in all rows of the block but the pending token's.
        first: row that predicts the token after the pending one: 0, or 1 where the pending token's row predicts none.
        known: the common settings; `settings` also holds those of a single family.
    """

    shape: ModelConfig
    recipe: HeadRecipe
    proposes: int
    mask: int
    first: int
    known: BlockKeys
    settings: dict[str, Any]

    @classmethod
    def read(cls, files: Given, target: ModelConfig, family: Head) -> "BlockSettings":
        """Parse the settings of `files`, a head of `family`, for `target`.

        Raises:
            ModelError: a key is missing, wrong or unsupported; or the head is for another target.
        """
        raw, path = files.settings, str(files.folder / "config.json")
        parts = checked(BlockParts, raw, path)
        kind = parts.speculators_model_type
        if kind not in (None, family):
            raise ModelError(f"{path}: speculators_model_type is {shown(kind)}, not {family}.")
        if (parts.model_type or "").endswith(ASSISTANT):
            raw = _of_transformers(raw, target)
        inner = raw if parts.transformer_layer_config is None else parts.transformer_layer_config
        merged = {**inner, **raw, **parts.dflash_config}
        known = checked(BlockKeys, merged, path)
        shape = shape_by(files, families.head_normed().model_type, inner)
        if shape.layers > MOST_LAYERS:
            raise ModelError(f"{path}: num_hidden_layers is {shape.layers}, and a head has {MOST_LAYERS} at most.")
        for key in UNKNOWN:
            if merged.get(key) not in (None, 0, 1):
                raise ModelError(f"{path}: {key} is {shown(merged[key])}, and no head with it is run.")
        for key, theirs, ours in (
            ("vocab_size", shape.vocab, target.vocab),
            ("num_target_layers", known.num_target_layers or target.layers, target.layers),
        ):
            if theirs != ours:
                raise ModelError(f"{path}: this head is for another target: {key} is {theirs}, not {ours}.")
        seen = _seen(known, kind is not None, shape.layers, path)
        own = tuple(
            replace(layer, mixer=replace(layer.attention, window=window, causal=causal))
            for layer, (window, causal) in zip(layers(shape.recipe), seen, strict=True)
        )
        # DeepSpec's settings always name a rank: 0 without biases.
        anchored = known.markov_rank is not None
        return cls(
            shape=shape,
            recipe=HeadRecipe(own, _aux_layers(known, kind is not None, shape.layers, target.layers, path)),
            proposes=number(files, known.draft_vocab_size or shape.vocab, "draft_vocab_size", 1, target.vocab),
            mask=number(files, known.mask_token_id, "mask_token_id", 0, target.vocab - 1),
            first=0 if (anchored if known.sample_from_anchor is None else known.sample_from_anchor) else 1,
            known=known,
            settings=merged,
        )

    def kernel(self, files: Given, block: int) -> tuple[int, int]:
        """Kernel size of the layers' convolutions over a block, and channels per group.

        Raises:
            ModelError: they are missing or out of range, or the group does not divide the channels.
        """
        taps = number(files, self.known.conv_kernel_size, "conv_kernel_size", 1, block)
        group = number(files, self.known.conv_group_size, "conv_group_size", 1, self.shape.hidden)
        if self.shape.hidden % group:
            raise ModelError(f"{files.folder / 'config.json'}: conv_group_size {group} does not divide hidden_size.")
        return taps, group


def block_recipe(files: Given, target: ModelConfig, family: Head) -> HeadRecipe:
    """Recipe of a head that drafts a block, by `BlockSettings.read`."""
    return BlockSettings.read(files, target, family).recipe


def _of_transformers(raw: dict[str, Any], target: ModelConfig) -> dict[str, Any]:
    """The settings of a head that transformers wrote, in the keys of other layouts.

    Its layers have a window unless it says otherwise, which shows one position more than that of a model.
    """
    layers, window = raw.get("num_hidden_layers"), raw.get("sliding_window", 2048)
    kinds = raw.get("layer_types")
    if not kinds and isinstance(layers, int) and layers <= MOST_LAYERS:
        kinds = ["sliding_attention"] * layers
    own = {"vocab_size": target.vocab, "layer_types": kinds}
    wider = {"sliding_window": window + 1} if isinstance(window, int) and not isinstance(window, bool) else {}
    return DEFAULTS | {key: one for key, one in raw.items() if key != "model_type"} | own | wider


def number(files: Given, value: int | None, key: str, least: int, most: int) -> int:
    """Return `value` of `key`, checked.

    Raises:
        ModelError: it is missing, or outside `least` ... `most`.
    """
    if value is None or not least <= value <= most:
        told = "missing" if value is None else shown(value)
        raise ModelError(f"{files.folder / 'config.json'}: {key} is {told}, not a number from {least} to {most}.")
    return value


def _aux_layers(known: BlockKeys, plain: bool, layers: int, target: int, path: str) -> tuple[int, ...]:
    """Layer counts after which hidden states are taken. Without `plain` the settings number layers from 0."""
    key = "aux_hidden_state_layer_ids" if plain else "target_layer_ids"
    given, after = known.aux_hidden_state_layer_ids if plain else known.target_layer_ids, 0 if plain else 1
    if given is None and not plain:
        given = [target // 2] if layers == 1 else [round(1 + i * (target - 4) / (layers - 1)) for i in range(layers)]
    if not given:
        raise ModelError(f"{path}: {key} is {shown(given)}, not a list of layers.")
    found = tuple(i + after for i in given)
    # Frameworks disagree on whether the last layer's output is normed.
    if min(found) < 0 or max(found) >= target:
        raise ModelError(
            f"{path}: {key} is {shown(given)}, and of this target it may name {-after} to {target - 1 - after}."
        )
    return found


def _seen(known: BlockKeys, speculators: bool, layers: int, path: str) -> list[tuple[int, bool]]:
    """Window of each layer, 0 for none, and whether its attention within the block is causal."""
    kinds, window = known.layer_types or ["full_attention"] * layers, known.sliding_window
    if len(kinds) != layers or not {"full_attention", "sliding_attention"} >= {*kinds}:
        raise ModelError(f"{path}: layer_types is {shown(kinds)}, not full_attention or sliding_attention for each.")
    slides = [kind == "sliding_attention" for kind in kinds]
    if any(slides) and window is None:
        raise ModelError(f"{path}: layer_types has sliding_attention, and sliding_window is {window}.")
    # By default windows are causal in files of speculators alone; with a selector the defaults swap.
    selects = known.selector_rank is not None
    if speculators:
        free = selects if known.sliding_window_non_causal is None else known.sliding_window_non_causal
        causal = [slide and not free for slide in slides]
    elif known.is_causal is not None:
        causal = [known.is_causal] * layers
    else:
        causal = slides if selects else [False] * layers
    return [((window or 0) if slide else 0, one) for slide, one in zip(slides, causal, strict=True)]
