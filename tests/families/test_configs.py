"""What files leave out is as in transformers, and what they may not say is refused in a sentence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, Lfm2Config, MuseGlimmerTextConfig
from transformers.models.lfm2.modeling_lfm2 import Lfm2MLP

from specchat.engine import families
from specchat.engine.errors import ModelError
from specchat.engine.llama_cpp.export import unsupported
from specchat.engine.model.rope import tables
from specchat.engine.recipe import Attention, Delta, Layer, Recipe
from specchat.engine.weights.config import parse_config
from tests.engine.tiny import FAMILIES, config

SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}
LG = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    "told",
    [
        {"intermediate_size": 300},
        {"intermediate_size": 100, "block_ff_dim": 300, "block_multiple_of": 32},
        {"block_ff_dim": 300, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 48},
        {"intermediate_size": 300, "block_auto_adjust_ff_dim": False},
        {},
    ],
)
def test_mlps_of_lfm2_are_as_wide_as_in_transformers(told: dict[str, Any]) -> None:
    theirs = Lfm2MLP(Lfm2Config(**SHAPE | told)).w1.out_features
    mine = parse_config(Path(), {"model_type": "lfm2", **SHAPE, **told}).recipe
    assert {layer.feed.width for layer in mine.layers} == {theirs}


@pytest.mark.parametrize("told", [{}, {"full_attn_idxs": [2, 5]}, {"tie_embedding": False, "full_attn_idxs": [0]}])
def test_layers_of_lfm2_are_those_of_transformers(told: dict[str, Any]) -> None:
    theirs = AutoConfig.for_model("lfm2", **SHAPE | told)
    mine = parse_config(Path(), {"model_type": "lfm2", **SHAPE, **told}).recipe
    kinds = ["full_attention" if isinstance(layer.mixer, Attention) else "conv" for layer in mine.layers]
    assert kinds == theirs.layer_types
    assert mine.tied == theirs.tie_word_embeddings
    assert {rope.theta for rope in mine.ropes if rope} <= {theirs.rope_parameters["rope_theta"]}


def kind_of(layer: Layer) -> str:
    """As "layer_types" has it."""
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        return "sliding_attention" if mixer.window else "full_attention"
    return "linear_attention" if isinstance(mixer, Delta) else "conv"


@pytest.mark.parametrize("layers", [4, 7])
@pytest.mark.parametrize("name", [name for name, changes in FAMILIES.items() if "layer_types" in changes])
def test_without_kinds_of_layers_they_are_those_of_transformers(name: str, layers: int) -> None:
    told = {k: v for k, v in FAMILIES[name].items() if k not in ("layer_types", "layer_rope_theta")}
    # So few layers share no KV entries.
    told = config(**told | {"num_hidden_layers": layers, "num_kv_shared_layers": 0})
    theirs = AutoConfig.for_model(**told)
    if theirs.layer_types is None:
        pytest.skip("transformers has none without the key")
    assert [kind_of(layer) for layer in parse_config(Path(), told).recipe.layers] == theirs.layer_types


@pytest.mark.parametrize("layers", [4, 6])
def test_layers_of_muse_are_those_of_transformers(layers: int) -> None:
    shape = SHAPE | {"num_hidden_layers": layers, "intermediate_size": 96}
    theirs = MuseGlimmerTextConfig(**shape)
    mine = parse_config(Path(), {"model_type": "muse_glimmer_text", **shape})
    mixers = mine.recipe.attentions
    assert [bool(mixer.window) for mixer in mixers] == [kind == "sliding_attention" for kind in theirs.layer_types]
    assert [mixer.rope is not None for mixer in mixers] == [bool(theta) for theta in theirs.layer_rope_theta]
    assert {mixer.scale for mixer in mixers} == {theirs.qk_scale_factor * theirs.head_dim**-0.5}
    assert (mine.recipe.cap, mine.recipe.logit_scale) == (theirs.final_logit_softcapping, theirs.output_multiplier)
    assert {norm.eps for layer in mine.recipe.layers for norm in layer.post_norms} == {theirs.post_norm_eps}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"sliding_window_pattern": 3},
        {"sliding_window": None, "layer_types": ["full_attention"] * 6},
        {"sliding_window": 64, "sliding_window_pattern": "LG", "layer_types": LG * 3},
    ],
)
def test_layers_of_exaone_are_those_of_transformers(told: dict[str, Any]) -> None:
    shape = SHAPE | {"intermediate_size": 96} | told
    theirs = AutoConfig.for_model("exaone4", **shape)
    mine = parse_config(Path(), {"model_type": "exaone4", **shape}).recipe
    windows = [theirs.sliding_window if kind == LG[0] else 0 for kind in theirs.layer_types]
    assert [mixer.window for mixer in mine.attentions] == windows
    assert [mixer.rope is not None for mixer in mine.attentions] == [
        theirs.sliding_window is None or bool(window) for window in windows
    ]
    assert (mine.norm.eps, mine.tied) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)


def test_a_pattern_in_letters_is_one_in_a_number() -> None:
    shape = SHAPE | {"model_type": "exaone4", "intermediate_size": 96}
    of = [parse_config(Path(), shape | {"sliding_window_pattern": each}).recipe for each in (3, "LLG")]
    assert of[0] == of[1]


@pytest.mark.parametrize("kind", sorted(families.known().keys() & CONFIG_MAPPING.keys()))
def test_a_file_without_a_key_is_one_with_the_default_of_transformers(kind: str) -> None:
    shape = SHAPE | {"intermediate_size": 96, "expand": 8192 // SHAPE["hidden_size"]}
    if getattr(AutoConfig.for_model(kind), "num_experts_per_tok", 0) is None:
        shape |= {"num_experts_per_tok": 2}
    short, whole = (
        parse_config(Path(), each).recipe
        for each in ({"model_type": kind, **shape}, AutoConfig.for_model(kind, **shape).to_dict())
    )
    assert without_options(short) == without_options(whole)
    for mine, theirs in zip(short.ropes, whole.ropes, strict=True):
        turns = zip(*(tables(rope, mine.width if mine else 2, 64) for rope in (mine, theirs)), strict=True)
        assert all(torch.equal(ours, others) for ours, others in turns)


def without_options(recipe: Recipe) -> Recipe:
    """`recipe` whose rotary embeddings have no options, which may name a default or leave it out."""

    def bare(layer: Layer) -> Layer:
        rope = layer.mixer.rope if isinstance(layer.mixer, Attention) else None
        return replace(layer, mixer=replace(layer.mixer, rope=replace(rope, options={}))) if rope else layer

    return replace(recipe, layers=tuple(map(bare, recipe.layers)))


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        ("lfm2", {"conv_bias": True}, "short convolutions with biases: not in specchat's decoder"),
        (
            "lfm2",
            {"hidden_size": 63, "num_attention_heads": 3, "num_key_value_heads": 3},
            "hidden_size is 63, and a short convolution needs an even",
        ),
        ("lfm2", {"layer_types": ["conv", "mamba"] * 2}, "no layers of 'mamba', only full_attention and conv"),
        ("granitemoehybrid", {"time_step_limit": [0.0, 0.1]}, "no recurrent layers with a limit on time steps"),
        ("granitemoehybrid", {"mamba_n_groups": 3}, "8 heads of recurrent states cannot be shared equally by 3 groups"),
        ("granitemoehybrid", {"mamba_n_heads": 6}, "mamba_n_heads 6 of 21 values are not mamba_expand times"),
        ("nemotron_h", {"mamba_hidden_act": "gelu"}, "no recurrent layers with 'gelu', only with silu"),
        ("nemotron_h", {"hybrid_override_pattern": "-M"}, "an MLP that follows neither attention nor Mamba"),
        ("nemotron_h", {"layers_block_type": ["conv"]}, "no layers of 'conv', only full_attention, linear_attention"),
        ("nemotron_h", {"moe_latent_size": 32}, "experts of latents: not in specchat's decoder"),
        ("lfm2", {"conv_L_cache": 0}, "conv_L_cache is 0, not a positive whole number"),
        ("muse", {"attention_bias": True}, "biases of queries beside a gate without"),
        ("muse", {"layer_rope_theta": [1.0]}, "layer_rope_theta has 1 values, and num_hidden_layers is 4"),
        ("muse", {"hidden_activation": "relu"}, "no activation 'relu'"),
        ("exaone4", {"sliding_window_pattern": -1}, "sliding_window_pattern is -1, not a positive whole number"),
        ("gemma3", {"num_hidden_layers": 2000}, "num_hidden_layers is 2000, not a number of layers up to 1024"),
        ("muse", {"output_multiplier": 0}, "output_multiplier is 0, not a positive number"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(family: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(Path(), config(**FAMILIES[family] | changes))


def test_no_gguf_file_is_written_of_them() -> None:
    reasons = {name: unsupported(parse_config(Path(), config(**FAMILIES[name])).recipe) for name in ("lfm2", "muse")}
    assert reasons["lfm2"] == "layers without attention"
    assert reasons["muse"]
