"""config.json of the heads that draft a block in one pass, in the layouts of z-lab, DeepSpec and speculators.

The app reads it too, so torch stays out of here.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Count, Foreign, MaybeCount, Table, checked, shown
from specchat.engine.heads.settings import Given
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.strategy import Head

MOST_LAYERS, MOST_BLOCK, MOST_RANK = 64, 64, 1 << 14
UNKNOWN = ("input_embedding_scale", "output_multiplier", "logit_scale", "final_logit_softcapping")
"""Keys that change what is computed, which heads for other kinds of targets have."""


class _Parts(Foreign):
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
    xpress_block_size: MaybeCount = None
    mask_token_id: int | None = Field(None, description="a token's number")
    sample_from_anchor: bool | None = Field(None, description=_SWITCH)
    markov_rank: int | None = Field(None, description="a whole number")
    markov_head_type: str = Field("vanilla", description="a text")
    confidence_head_with_markov: bool = Field(True, description=_SWITCH)
    enable_confidence_head: bool = Field(True, description=_SWITCH)
    selector_rank: MaybeCount = None
    selector_top_k: MaybeCount = None
    xpress_rank: Count = 256
    xpress_mlp_ratio: Count = 2
    xpress_mlp_hidden: MaybeCount = None
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
        layer: shapes of each of the layers.
        states: the numbers of layers after which the target's states are taken.
        proposes: tokens that a head of its own scores.
        block: rows of the block, the pending token's among them.
        mask: the token of its other rows.
        first: the row that guesses the token after the pending one: 0, or 1 where the pending token's row guesses none.
        windows: for each layer how many places back a row sees; None for all.
        causal: for each layer whether a row does not see those after it.
        known: the settings as they are given.
    """

    layer: ModelConfig
    states: tuple[int, ...]
    proposes: int
    block: int
    mask: int
    first: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    known: BlockKeys

    @classmethod
    def read(cls, files: Given, target: ModelConfig, family: Head) -> "BlockSettings":
        """From `files`, which should be of `family`, for `target`.

        Raises:
            ModelError: a key is missing, wrong, or asks for what is not known; or the head is for another target.
        """
        raw, path = files.settings, str(files.folder / "config.json")
        parts = checked(_Parts, raw, path)
        kind = parts.speculators_model_type
        if kind not in (None, family):
            raise ModelError(f"{path}: speculators_model_type is {shown(kind)}, not {family}.")
        inner = raw if parts.transformer_layer_config is None else parts.transformer_layer_config
        merged = {**inner, **raw, **parts.dflash_config}
        known = checked(BlockKeys, merged, path)
        layer = parse_config(files.folder, {"model_type": "qwen3", **inner})
        if layer.layers > MOST_LAYERS:
            raise ModelError(f"{path}: num_hidden_layers is {layer.layers}, and a head has {MOST_LAYERS} at most.")
        for key in UNKNOWN:
            if merged.get(key) not in (None, 0, 1):
                raise ModelError(f"{path}: {key} is {shown(merged[key])}, and no head with it is run.")
        for key, theirs, ours in (
            ("vocab_size", layer.vocab, target.vocab),
            ("num_target_layers", known.num_target_layers or target.layers, target.layers),
        ):
            if theirs != ours:
                raise ModelError(f"{path}: this head is for another target: {key} is {theirs}, not {ours}.")
        # As DeepSpec trains them, whose settings alone have this key in a head without a bias.
        anchored = family == "dspark" or (family == "dflash" and known.markov_rank is not None)
        windows = _windows(known, layer.layers, path)
        return cls(
            layer=layer,
            states=_states(known, kind is not None, layer.layers, target.layers, path),
            proposes=number(files, known.draft_vocab_size or layer.vocab, "draft_vocab_size", 1, target.vocab),
            block=number(files, known.block_size or known.xpress_block_size, "block_size", 2, MOST_BLOCK),
            mask=number(files, known.mask_token_id, "mask_token_id", 0, target.vocab - 1),
            first=0 if (anchored if known.sample_from_anchor is None else known.sample_from_anchor) else 1,
            windows=windows,
            causal=_causal(known, kind is not None, family, windows),
            known=known,
        )

    def kernel(self, files: Given) -> tuple[int, int]:
        """The taps of the layers' convolutions, and how many channels share one.

        Raises:
            ModelError: they are not told, or the channels cannot be shared so.
        """
        taps = number(files, self.known.conv_kernel_size, "conv_kernel_size", 1, self.block)
        group = number(files, self.known.conv_group_size, "conv_group_size", 1, self.layer.hidden)
        if self.layer.hidden % group:
            raise ModelError(f"{files.folder / 'config.json'}: conv_group_size {group} does not divide hidden_size.")
        return taps, group


def number(files: Given, value: int | None, key: str, least: int, most: int) -> int:
    """`value` of `key` in the settings.

    Raises:
        ModelError: it is no whole number from `least` to `most`.
    """
    if value is None or not least <= value <= most:
        told = "missing" if value is None else shown(value)
        raise ModelError(f"{files.folder / 'config.json'}: {key} is {told}, not a number from {least} to {most}.")
    return value


def _states(known: BlockKeys, plain: bool, layers: int, target: int, path: str) -> tuple[int, ...]:
    """After how many layers states are taken. Where numbers are not `plain` they are of layers, the first being 0."""
    key = "aux_hidden_state_layer_ids" if plain else "target_layer_ids"
    given, after = known.aux_hidden_state_layer_ids if plain else known.target_layer_ids, 0 if plain else 1
    if given is None and not plain:
        given = [target // 2] if layers == 1 else [round(1 + i * (target - 4) / (layers - 1)) for i in range(layers)]
    if not given:
        raise ModelError(f"{path}: {key} is {shown(given)}, not a list of layers.")
    states = tuple(i + after for i in given)
    # What comes out of the last layer is normed in some of the frameworks, and in others not.
    if min(states) < 0 or max(states) >= target:
        raise ModelError(
            f"{path}: {key} is {shown(given)}, and of this target it may name {-after} to {target - 1 - after}."
        )
    return states


def _windows(known: BlockKeys, layers: int, path: str) -> tuple[int | None, ...]:
    kinds, window = known.layer_types or ["full_attention"] * layers, known.sliding_window
    if len(kinds) != layers or not {"full_attention", "sliding_attention"} >= {*kinds}:
        raise ModelError(f"{path}: layer_types is {shown(kinds)}, not full_attention or sliding_attention for each.")
    if "sliding_attention" not in kinds:
        return (None,) * layers
    if window is None:
        raise ModelError(f"{path}: layer_types has sliding_attention, and sliding_window is {window}.")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _causal(known: BlockKeys, speculators: bool, family: Head, windows: tuple[int | None, ...]) -> tuple[bool, ...]:
    slides = tuple(window is not None for window in windows)
    if speculators:
        free = family == "dflash2" if known.sliding_window_non_causal is None else known.sliding_window_non_causal
        return tuple(slide and not free for slide in slides)
    if known.is_causal is not None:
        return (known.is_causal,) * len(windows)
    return slides if family == "dflash2" else (False,) * len(windows)
