"""What files of Muse and LFM2 leave out is as in transformers, and what they may not say is refused in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, Lfm2Config, MuseGlimmerTextConfig
from transformers.models.lfm2.modeling_lfm2 import Lfm2MLP

from specchat.engine.errors import ModelError
from specchat.engine.gguf.export import unsupported
from specchat.engine.model.config import parse_config
from specchat.engine.recipe import Attention
from tests.engine.tiny import FAMILIES, config

SHAPE = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}


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
    ("family", "changes", "words"),
    [
        ("lfm2", {"conv_bias": True}, "short convolutions with biases: not in specchat's decoder"),
        (
            "lfm2",
            {"hidden_size": 63, "num_attention_heads": 3, "num_key_value_heads": 3},
            "hidden_size is 63, and a short convolution needs an even",
        ),
        ("lfm2", {"layer_types": ["conv", "mamba"] * 2}, "no layers of 'mamba', only full_attention and conv"),
        ("lfm2", {"conv_L_cache": 0}, "conv_L_cache is 0, not a positive whole number"),
        ("muse", {"attention_bias": True}, "biases of queries beside a gate without"),
        ("muse", {"layer_rope_theta": [1.0]}, "layer_rope_theta has 1 values, and num_hidden_layers is 4"),
        ("muse", {"hidden_activation": "relu"}, "no activation 'relu'"),
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
