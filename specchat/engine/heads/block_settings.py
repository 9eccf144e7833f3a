"""config.json of the heads that draft a block in one pass, in the layouts of z-lab, DeepSpec and speculators.

The app reads it too, so torch stays out of here.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, MaybeCount, Table, checked, shown
from specchat.engine.heads.recipe import Given, HeadRecipe, layers
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.strategy import Head

MOST_LAYERS, MOST_BLOCK, MOST_RANK = 64, 64, 1 << 14
UNKNOWN = ("input_embedding_scale", "output_multiplier", "logit_scale", "final_logit_softcapping")
"""Keys that change what is computed, which heads for other kinds of targets have."""


class BlockParts(Foreign):
    """What the keys of a head are spread over."""

    speculators_model_type: str | None = None
    dflash_config: Table
    transformer_layer_config: dict[str, Any] | None = Field(None, description="an object")


_SWITCH = "true or false"
_LAYERS = "a list of layers"


class BlockKeys(Foreign):
    """The keys of all of these heads."""

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
    """How the layers that all of these heads share are to be run.

    Attributes:
        shape: shapes of the layers, which are alike.
        recipe: the layers, with what each of their rows sees.
        proposes: tokens that a head of its own scores.
        mask: the token of the block's rows but the pending token's.
        first: the row that guesses the token after the pending one: 0, or 1 where the pending token's row guesses none.
        known: the settings as they are given; `settings` are all, with those that a family has besides.
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
        """From `files`, which should be of `family`, for `target`.

        Raises:
            ModelError: a key is missing, wrong, or asks for what is not known; or the head is for another target.
        """
        raw, path = files.settings, str(files.folder / "config.json")
        parts = checked(BlockParts, raw, path)
        kind = parts.speculators_model_type
        if kind not in (None, family):
            raise ModelError(f"{path}: speculators_model_type is {shown(kind)}, not {family}.")
        inner = raw if parts.transformer_layer_config is None else parts.transformer_layer_config
        merged = {**inner, **raw, **parts.dflash_config}
        known = checked(BlockKeys, merged, path)
        shape = parse_config(files.folder, {"model_type": families.head_normed().model_type, **inner})
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
            replace(layer, mixer=replace(layer.mixer, window=window, causal=causal))
            for layer, (window, causal) in zip(layers(shape.recipe), seen, strict=True)
        )
        # DeepSpec's settings have a rank of biases, 0 where there are none.
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
        """The taps of the layers' convolutions over a block, and how many channels share one.

        Raises:
            ModelError: they are not told, or the channels cannot be shared so.
        """
        taps = number(files, self.known.conv_kernel_size, "conv_kernel_size", 1, block)
        group = number(files, self.known.conv_group_size, "conv_group_size", 1, self.shape.hidden)
        if self.shape.hidden % group:
            raise ModelError(f"{files.folder / 'config.json'}: conv_group_size {group} does not divide hidden_size.")
        return taps, group


def block_recipe(files: Given, target: ModelConfig, family: Head) -> HeadRecipe:
    """The recipe of a head that drafts a block, as `BlockSettings.read`."""
    return BlockSettings.read(files, target, family).recipe


def number(files: Given, value: int | None, key: str, least: int, most: int) -> int:
    """`value` of `key` in the settings.

    Raises:
        ModelError: it is no whole number from `least` to `most`.
    """
    if value is None or not least <= value <= most:
        told = "missing" if value is None else shown(value)
        raise ModelError(f"{files.folder / 'config.json'}: {key} is {told}, not a number from {least} to {most}.")
    return value


def _aux_layers(known: BlockKeys, plain: bool, layers: int, target: int, path: str) -> tuple[int, ...]:
    """After how many layers hidden states are taken. Where numbers are not `plain` they are of layers, from 0 on."""
    key = "aux_hidden_state_layer_ids" if plain else "target_layer_ids"
    given, after = known.aux_hidden_state_layer_ids if plain else known.target_layer_ids, 0 if plain else 1
    if given is None and not plain:
        given = [target // 2] if layers == 1 else [round(1 + i * (target - 4) / (layers - 1)) for i in range(layers)]
    if not given:
        raise ModelError(f"{path}: {key} is {shown(given)}, not a list of layers.")
    found = tuple(i + after for i in given)
    # What comes out of the last layer is normed in some of the frameworks, and in others not.
    if min(found) < 0 or max(found) >= target:
        raise ModelError(
            f"{path}: {key} is {shown(given)}, and of this target it may name {-after} to {target - 1 - after}."
        )
    return found


def _seen(known: BlockKeys, speculators: bool, layers: int, path: str) -> list[tuple[int, bool]]:
    """The window of each layer, 0 for all, and whether a row does not see those of its block after it."""
    kinds, window = known.layer_types or ["full_attention"] * layers, known.sliding_window
    if len(kinds) != layers or not {"full_attention", "sliding_attention"} >= {*kinds}:
        raise ModelError(f"{path}: layer_types is {shown(kinds)}, not full_attention or sliding_attention for each.")
    slides = [kind == "sliding_attention" for kind in kinds]
    if any(slides) and window is None:
        raise ModelError(f"{path}: layer_types has sliding_attention, and sliding_window is {window}.")
    # Unless told, windows are causal in files of speculators and in no others; with a selector it is the reverse.
    selects = known.selector_rank is not None
    if speculators:
        free = selects if known.sliding_window_non_causal is None else known.sliding_window_non_causal
        causal = [slide and not free for slide in slides]
    elif known.is_causal is not None:
        causal = [known.is_causal] * layers
    else:
        causal = slides if selects else [False] * layers
    return [((window or 0) if slide else 0, one) for slide, one in zip(slides, causal, strict=True)]
