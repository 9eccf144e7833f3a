"""config.json of the heads that draft a block in one pass, in the layouts of z-lab, DeepSpec and speculators.

The app reads it too, so torch stays out of here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from specchat.engine.errors import ModelError
from specchat.engine.heads.settings import Given
from specchat.engine.model.config import ModelConfig, parse_config
from specchat.engine.strategies import Head

MOST_LAYERS, MOST_BLOCK, MOST_RANK = 64, 64, 1 << 14
UNKNOWN = ("input_embedding_scale", "output_multiplier", "logit_scale", "final_logit_softcapping")
"""Keys that change what is computed, which heads for other kinds of targets have."""


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
        known: all settings by key.
    """

    layer: ModelConfig
    states: tuple[int, ...]
    proposes: int
    block: int
    mask: int
    first: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    known: Mapping[str, object]

    @classmethod
    def read(cls, files: Given, target: ModelConfig, family: Head) -> "BlockSettings":
        """From `files`, which should be of `family`, for `target`.

        Raises:
            ModelError: a key is missing, wrong, or asks for what is not known; or the head is for another target.
        """
        raw, path = files.settings, files.folder / "config.json"
        kind = raw.get("speculators_model_type")
        if kind not in (None, family):
            raise ModelError(f"{path}: speculators_model_type is {str(kind)[:40]!r}, not {family}.")
        nested, inner = raw.get("dflash_config") or {}, raw.get("transformer_layer_config", raw)
        if not isinstance(nested, dict) or not isinstance(inner, dict):
            raise ModelError(f"{path}: dflash_config or transformer_layer_config is not an object.")
        known = {**inner, **raw, **nested}
        layer = parse_config(files.folder, {"model_type": "qwen3", **inner})
        if layer.layers > MOST_LAYERS:
            raise ModelError(f"{path}: num_hidden_layers is {layer.layers}, and a head has {MOST_LAYERS} at most.")
        for key in UNKNOWN:
            if known.get(key) not in (None, 0, 1):
                raise ModelError(f"{path}: {key} is {str(known[key])[:40]}, and no head with it is run.")
        for key, theirs, ours in (
            ("vocab_size", layer.vocab, target.vocab),
            ("num_target_layers", known.get("num_target_layers", target.layers), target.layers),
        ):
            if theirs != ours:
                raise ModelError(f"{path}: this head is for another target: {key} is {str(theirs)[:40]}, not {ours}.")
        # As DeepSpec trains them, whose settings alone have this key in a head without a bias.
        anchored = family == "dspark" or (family == "dflash" and "markov_rank" in known)
        windows = _windows(known, layer.layers, str(path))
        return cls(
            layer=layer,
            states=_states(known, kind is not None, layer.layers, target.layers, str(path)),
            proposes=number(files, known.get("draft_vocab_size") or layer.vocab, "draft_vocab_size", 1, target.vocab),
            block=number(files, known.get("block_size", known.get("xpress_block_size")), "block_size", 2, MOST_BLOCK),
            mask=number(files, known.get("mask_token_id"), "mask_token_id", 0, target.vocab - 1),
            first=0 if known.get("sample_from_anchor", anchored) else 1,
            windows=windows,
            causal=_causal(known, kind is not None, family, windows),
            known=known,
        )

    def kernel(self, files: Given) -> tuple[int, int]:
        """The taps of the layers' convolutions, and how many channels share one.

        Raises:
            ModelError: they are not told, or the channels cannot be shared so.
        """
        taps = number(files, self.known.get("conv_kernel_size"), "conv_kernel_size", 1, self.block)
        group = number(files, self.known.get("conv_group_size"), "conv_group_size", 1, self.layer.hidden)
        if self.layer.hidden % group:
            raise ModelError(f"{files.folder / 'config.json'}: conv_group_size {group} does not divide hidden_size.")
        return taps, group


def number(files: Given, value: object, key: str, least: int, most: int) -> int:
    """`value` of `key` in the settings.

    Raises:
        ModelError: it is no whole number from `least` to `most`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        told = "missing" if value is None else str(value)[:40]
        raise ModelError(f"{files.folder / 'config.json'}: {key} is {told}, not a number from {least} to {most}.")
    return value


def _states(known: Mapping[str, object], plain: bool, layers: int, target: int, path: str) -> tuple[int, ...]:
    """After how many layers states are taken. Where numbers are not `plain` they are of layers, the first being 0."""
    key = "aux_hidden_state_layer_ids" if plain else "target_layer_ids"
    given, after = known.get(key), 0 if plain else 1
    if given is None and not plain:
        given = [target // 2] if layers == 1 else [round(1 + i * (target - 4) / (layers - 1)) for i in range(layers)]
    if not isinstance(given, list) or not given or not all(isinstance(i, int) for i in given):
        raise ModelError(f"{path}: {key} is {str(given)[:60]}, not a list of layers.")
    states = tuple(i + after for i in given)
    # What comes out of the last layer is normed in some of the frameworks, and in others not.
    if min(states) < 0 or max(states) >= target:
        raise ModelError(
            f"{path}: {key} is {str(given)[:60]}, and of this target it may name {-after} to {target - 1 - after}."
        )
    return states


def _windows(known: Mapping[str, object], layers: int, path: str) -> tuple[int | None, ...]:
    kinds, window = known.get("layer_types") or ["full_attention"] * layers, known.get("sliding_window")
    if not isinstance(kinds, list) or len(kinds) != layers or not {"full_attention", "sliding_attention"} >= {*kinds}:
        raise ModelError(f"{path}: layer_types is {str(kinds)[:60]}, not full_attention or sliding_attention for each.")
    if "sliding_attention" not in kinds:
        return (None,) * layers
    if not isinstance(window, int) or window < 1:
        raise ModelError(f"{path}: layer_types has sliding_attention, and sliding_window is {str(window)[:40]}.")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _causal(
    known: Mapping[str, object], speculators: bool, family: Head, windows: tuple[int | None, ...]
) -> tuple[bool, ...]:
    slides = tuple(window is not None for window in windows)
    if speculators:
        free = known.get("sliding_window_non_causal", family == "dflash2")
        return tuple(slide and not free for slide in slides)
    if known.get("is_causal") is not None:
        return (bool(known["is_causal"]),) * len(windows)
    return slides if family == "dflash2" else (False,) * len(windows)
