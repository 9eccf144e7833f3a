"""Settings of heads that draft a block, in the layouts of z-lab, DeepSpec, speculators and transformers. No torch."""

from dataclasses import replace
from typing import Any

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.foreign import shown
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import HeadRecipe, layers, shape_of
from specchat.engine.heads.settings import HeadKeys, HeadSettings, proposing, read_keys
from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig

MOST_LAYERS, MOST_BLOCK, MOST_RANK = 64, 64, 1 << 14
UNKNOWN = ("input_embedding_scale", "output_multiplier", "logit_scale", "final_logit_softcapping")
"""Keys of heads for other kinds of targets, which change the result."""
ASSISTANT = "_assistant"
"""End of the model_type of block heads as transformers writes them."""
DEFAULTS = {"block_size": 16, "mask_token_id": 201818, "target_layer_ids": [1, 13, 25, 37, 49]}
"""Defaults of keys that their files may omit."""


def block(files: HeadFiles, target: ModelConfig, family: Head) -> HeadSettings:
    """Settings of a head of `family` that drafts a block.

    Raises:
        ModelError: a key is missing, wrong or unsupported; or the head is for another target.
    """
    raw = files.settings
    if str(raw.get("model_type")).endswith(ASSISTANT):
        raw = _of_transformers(raw, target)
    inner, keys = read_keys(files, raw, family)
    path, speculators = keys.path, keys.speculators_model_type
    shape = shape_of(files, inner, families.head_normed())
    if shape.layers > MOST_LAYERS:
        raise ModelError(f"{path}: num_hidden_layers is {shape.layers}, and a head has {MOST_LAYERS} at most.")
    for key in UNKNOWN:
        if (value := {**inner, **raw, **(raw.get("dflash_config") or {})}.get(key)) not in (None, 0, 1):
            raise ModelError(f"{path}: {key} is {shown(value)}, and no head with it is run.")
    keys.agree("vocab_size", shape.vocab, target.vocab)
    keys.agree("num_target_layers", keys.num_target_layers or target.layers, target.layers)
    keys.number("mask_token_id", 0, target.vocab - 1)
    own = tuple(
        replace(layer, mixer=replace(layer.attention, window=window, causal=causal))
        for layer, (window, causal) in zip(
            layers(shape.recipe), _seen(keys, bool(speculators), shape.layers, path), strict=True
        )
    )
    recipe = HeadRecipe(own, _aux_layers(keys, bool(speculators), shape.layers, target.layers, path))
    return HeadSettings(shape, recipe, keys, proposing(keys, shape, target))


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


def _aux_layers(known: HeadKeys, plain: bool, layers: int, target: int, path: str) -> tuple[int, ...]:
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


def _seen(known: HeadKeys, speculators: bool, layers: int, path: str) -> list[tuple[int, bool]]:
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
