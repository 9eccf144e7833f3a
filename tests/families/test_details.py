"""Every detail of a recipe shows in the logits: with one of them wrong they are no longer those of transformers."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.recipe import Apart, Attention, Experts, Layer, Recipe, Rope
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_bad_models import edit, pair, refusal
from tests.engine.test_decoder import reference, tokens
from tests.engine.tiny import FAMILIES, checkpoint

TEXT = tokens(60)
WITHIN = 2e-4
"""How far logits of float32 may be from transformers'."""


def of_layers(change: Callable[[Layer], Layer]) -> Callable[[Recipe], Recipe]:
    """Change the second layer alone."""

    def changed(recipe: Recipe) -> Recipe:
        first, second, *others = recipe.layers
        return replace(recipe, layers=(first, change(second), *others))

    return changed


def of_attention(change: Callable[[Attention], Attention]) -> Callable[[Recipe], Recipe]:
    return of_layers(lambda layer: replace(layer, mixer=change(layer.mixer)))


def of_first(change: Callable[[Any], Any]) -> Callable[[Recipe], Recipe]:
    """Change the mixer of the first layer alone."""

    def changed(recipe: Recipe) -> Recipe:
        first, *others = recipe.layers
        return replace(recipe, layers=(replace(first, mixer=change(first.mixer)), *others))

    return changed


def exchanged(layer: Layer) -> Layer:
    """Experts whose gate and up have each other's weights."""
    assert isinstance(layer.feed, Experts)
    each = layer.feed.each
    gate_up = replace(each.gate_up, names=each.gate_up.names[::-1])
    return replace(layer, feed=replace(layer.feed, each=replace(each, gate_up=gate_up)))


def of_mixture(change: Callable[[Experts], Experts]) -> Callable[[Recipe], Recipe]:
    def changed(layer: Layer) -> Layer:
        assert isinstance(layer.feed, Experts)
        return replace(layer, feed=change(layer.feed))

    return of_layers(changed)


def of_apart(change: Callable[[Apart], Apart]) -> Callable[[Recipe], Recipe]:
    return of_mixture(lambda feed: replace(feed, apart=feed.apart and change(feed.apart)))


def of_the_first_head(recipe: Recipe) -> Recipe:
    """A rope whose frequencies are others in the second layer."""
    return of_attention(lambda mixer: replace(mixer, rope=replace(recipe.layers[0].mixer.rope, theta=5000.0)))(recipe)


WRONG: dict[str, tuple[str, Callable[[Recipe], Recipe]]] = {
    "a layer turns that does not": ("smollm3", of_the_first_head),
    "a layer does not turn that does": ("llama", of_attention(lambda mixer: replace(mixer, rope=None))),
    "frequencies": ("qwen3", of_the_first_head),
    "no norm of queries": ("qwen3", of_attention(lambda mixer: replace(mixer, query_norm=None))),
    "no norm of all keys": ("olmo2", of_attention(lambda mixer: replace(mixer, key_norm=None))),
    "norms change places": (
        "olmo2",
        of_layers(lambda one: replace(one, post_mixer=one.post_feed, post_feed=one.post_mixer)),
    ),
    "a norm before instead of after": (
        "olmo2",
        of_layers(lambda one: replace(one, pre_feed=one.post_feed, post_feed=None)),
    ),
    "no norm before": ("llama", of_layers(lambda one: replace(one, pre_feed=None))),
    "a norm after instead of before": (
        "llama",
        of_layers(lambda one: replace(one, pre_mixer=None, post_mixer=one.pre_mixer)),
    ),
    "eps": ("olmo2", lambda r: replace(r, norm=replace(r.norm, eps=0.1))),
    "a window off by one": ("mistral-window", of_attention(lambda mixer: replace(mixer, window=mixer.window + 1))),
    "a layer slides that does not": ("gemma3", of_attention(lambda mixer: replace(mixer, window=8))),
    "a local rope for a global one": (
        "gemma3",
        lambda r: of_attention(lambda mixer: replace(mixer, rope=r.layers[0].mixer.rope))(r),
    ),
    "a weight of a norm not less one": (
        "gemma3",
        of_layers(lambda one: replace(one, post_feed=replace(one.post_feed, plus_one=False))),
    ),
    "no cap of logits": ("gemma3", lambda recipe: replace(recipe, cap=0.0)),
    "silu for gelu": ("gemma3", of_layers(lambda one: replace(one, feed=replace(one.feed, activation="silu")))),
    "gelu for squared ReLU": (
        "nemotron",
        of_layers(lambda one: replace(one, feed=replace(one.feed, activation="gelu_tanh"))),
    ),
    "no bias of a norm": (
        "starcoder2",
        of_layers(lambda one: replace(one, pre_feed=replace(one.pre_feed, bias=False))),
    ),
    "a norm of values as they are": (
        "nemotron",
        of_layers(lambda one: replace(one, pre_feed=replace(one.pre_feed, centred=False))),
    ),
    "no bias of the last norm": ("nemotron", lambda r: replace(r, norm=replace(r.norm, bias=False))),
    "groups by two experts": ("deepseek_v2", of_mixture(lambda feed: replace(feed, by_best=False))),
    "shares of V2 that add up to one": ("deepseek_v2", of_mixture(lambda feed: replace(feed, renormalised=True))),
    "another curve below zero": (
        "apertus",
        of_layers(lambda one: replace(one, feed=replace(one.feed, curve=one.feed.curve[:1] * 2 + one.feed.curve[2:]))),
    ),
    "another bound of the curve": (
        "apertus",
        of_layers(lambda one: replace(one, feed=replace(one.feed, curve=(*one.feed.curve[:3], one.feed.curve[2])))),
    ),
    "shares as they are": (
        "qwen3_moe",
        of_layers(lambda one: replace(one, feed=replace(one.feed, renormalised=False))),
    ),
    "one expert instead of two": ("mixtral", of_layers(lambda one: replace(one, feed=replace(one.feed, top=1)))),
    "three experts instead of two": ("qwen3_moe", of_layers(lambda one: replace(one, feed=replace(one.feed, top=3)))),
    "gate and up exchanged": ("mixtral", of_layers(exchanged)),
    "queries that do not grow": ("ministral3", of_attention(lambda mixer: replace(mixer, temper=(0.0, 1.0)))),
    "values without a norm": ("gemma4", of_attention(lambda mixer: replace(mixer, value_norm=None))),
    "no factor at the end": ("gemma4", of_layers(lambda one: replace(one, scalar=""))),
    "no cap": ("gemma4", lambda recipe: replace(recipe, cap=0.0)),
    "all of a head turns": (
        "gemma4",
        of_attention(lambda mixer: replace(mixer, rope=replace(mixer.rope, kind="default"))),
    ),
    "an MLP beside experts without its gate": (
        "qwen2_moe",
        of_mixture(lambda feed: replace(feed, shared_gate=None)),
    ),
    "experts whose shares do not add up to one": (
        "qwen3_5_moe",
        of_mixture(lambda feed: replace(feed, renormalised=False)),
    ),
    "experts chosen without the correction": ("glm4_moe", of_mixture(lambda feed: replace(feed, correction=""))),
    "experts chosen without theirs": ("lfm2_moe", of_mixture(lambda feed: replace(feed, correction=""))),
    "experts of a sum without its factor": ("lfm2_moe", of_mixture(lambda feed: replace(feed, factor=1.0))),
    "experts chosen by their shares alone": ("minimax_m2", of_mixture(lambda feed: replace(feed, correction=""))),
    "more than a part of heads turns": (
        "minimax_m2",
        of_attention(lambda mixer: replace(mixer, rope=replace(mixer.rope, width=32))),
    ),
    "shares that add up to one": ("olmoe", of_mixture(lambda feed: replace(feed, renormalised=True))),
    "no norm of all queries": ("olmoe", of_attention(lambda mixer: replace(mixer, query_norm=None))),
    "an embedding as it is stored": ("gemma", lambda recipe: replace(recipe, embed_scale=1.0)),
    "experts of any group": ("glm4_moe", of_mixture(lambda feed: replace(feed, groups=(1, 1)))),
    "experts of three groups": ("glm4_moe", of_mixture(lambda feed: replace(feed, groups=(4, 3)))),
    "shares by a softmax": ("glm4_moe", of_mixture(lambda feed: replace(feed, sigmoid=False))),
    "experts without their factor": ("glm4_moe", of_mixture(lambda feed: replace(feed, factor=1.0))),
    "no shared MLP": ("glm4_moe", of_mixture(lambda feed: replace(feed, shared=None))),
    "another part of heads turns": (
        "glm4_moe",
        of_attention(lambda mixer: replace(mixer, rope=replace(mixer.rope, width=32))),
    ),
    "experts without their factors": ("gemma4_moe", of_mixture(lambda feed: replace(feed, factors=""))),
    "a router's inputs too large": (
        "gemma4_moe",
        of_apart(lambda own: replace(own, router=replace(own.router, factor=1.0))),
    ),
    "inputs of experts and MLP exchanged": (
        "gemma4_moe",
        of_apart(lambda own: replace(own, pre_experts=own.pre_shared, pre_shared=own.pre_experts)),
    ),
    "norms after experts and MLP exchanged": (
        "gemma4_moe",
        of_apart(lambda own: replace(own, post_experts=own.post_shared, post_shared=own.post_experts)),
    ),
    "halves for pairs": (
        "glm4",
        of_attention(lambda mixer: replace(mixer, qkv=replace(mixer.qkv, paired=(0, 0)))),
    ),
    "all of a head turns that has a part": (
        "phi3",
        of_attention(lambda mixer: replace(mixer, rope=replace(mixer.rope, width=32))),
    ),
    "a layer without its inputs": ("gemma4_e", of_layers(lambda one: replace(one, input=None))),
    "inputs of layers without rows of tokens": (
        "gemma4_e",
        lambda r: replace(r, per_layer=replace(r.per_layer, scale=0.0)),
    ),
    "inputs of layers too large": (
        "gemma4_e",
        lambda r: replace(r, per_layer=replace(r.per_layer, norm=replace(r.per_layer.norm, factor=1.0))),
    ),
    "scale of scores": ("granite", of_attention(lambda mixer: replace(mixer, scale=mixer.head_dim**-0.5))),
    "factor on residuals": ("granite", of_layers(lambda one: replace(one, residual=1.0))),
    "factor on embeddings": ("granite", lambda recipe: replace(recipe, embed_scale=1.0)),
    "a norm of queries not less one": (
        "qwen3_5",
        of_attention(lambda mixer: replace(mixer, query_norm=replace(mixer.query_norm, plus_one=False))),
    ),
    "all of each head turns": (
        "qwen3_5",
        of_attention(lambda mixer: replace(mixer, rope=replace(mixer.rope, width=mixer.head_dim))),
    ),
    "decays exchanged with their shifts": (
        "qwen3_5",
        of_first(lambda one: replace(one, decay=one.shift, shift=one.decay)),
    ),
    "a norm after the layer less one": (
        "qwen3_5",
        of_first(lambda one: replace(one, norm=replace(one.norm, plus_one=True))),
    ),
    "gates exchanged": (
        "qwen3_5",
        of_first(lambda one: replace(one, gates=replace(one.gates, names=one.gates.names[::-1]))),
    ),
    "recurrent rows as they are stored": (
        "qwen3_next",
        of_first(lambda one: replace(one, mix=replace(one.mix, by_head=()))),
    ),
    "gates as they are stored": (
        "qwen3_next",
        of_first(lambda one: replace(one, gates=replace(one.gates, by_head=()))),
    ),
    "no bias of a convolution": (
        "granitemoehybrid",
        of_first(lambda one: replace(one, selective=replace(one.selective, conv_bias=""))),
    ),
    "values passed on by the shifts of time steps": (
        "granitemoehybrid",
        of_first(lambda one: replace(one, selective=replace(one.selective, skip=one.shift))),
    ),
    "rope in Granite 4": (
        "granitemoehybrid",
        of_attention(lambda mixer: replace(mixer, rope=Rope(10000.0, "default", mixer.head_dim, {}))),
    ),
    "embeddings without their norm": ("muse", lambda recipe: replace(recipe, embed_eps=None)),
    "heads of queries and gates as they are stored": (
        "muse",
        of_attention(lambda mixer: replace(mixer, qkv=replace(mixer.qkv, alternating=0))),
    ),
    "no norm of keys without a weight": ("muse", of_attention(lambda mixer: replace(mixer, key_norm=None))),
    "eps of norms after": (
        "muse",
        of_layers(lambda one: replace(one, post_feed=replace(one.post_feed, eps=1.0))),
    ),
    "a layer turns without a window": (
        "muse",
        lambda r: of_attention(lambda mixer: replace(mixer, rope=r.layers[0].mixer.rope))(r),
    ),
    "a factor on queries": ("muse", of_attention(lambda mixer: replace(mixer, scale=mixer.head_dim**-0.5))),
    "a convolution of another layer": (
        "lfm2",
        lambda r: of_first(lambda one: replace(one, convolution=r.layers[2].mixer.convolution))(r),
    ),
    "parts of a short convolution as they are not": (
        "lfm2",
        of_first(lambda one: replace(one, mix=replace(one.mix, by_head=(8, 8, 8)))),
    ),
    "no norm of queries beside convolutions": ("lfm2", of_attention(lambda mixer: replace(mixer, query_norm=None))),
    "a layer turns beside windows": ("exaone4", of_the_first_head),
    "no norm of keys without rope": ("exaone4", of_attention(lambda mixer: replace(mixer, key_norm=None))),
    "no biases of queries, keys and values": (
        "seed_oss",
        of_attention(lambda mixer: replace(mixer, qkv=replace(mixer.qkv, bias=False))),
    ),
    "halves for pairs of whole heads": (
        "ernie4_5",
        of_attention(lambda mixer: replace(mixer, qkv=replace(mixer.qkv, paired=(0, 0)))),
    ),
    "scores 5 % off": ("gpt_oss", of_attention(lambda mixer: replace(mixer, scale=1.05 * mixer.scale))),
    "a window of sinks off by one": ("gpt_oss", of_first(lambda mixer: replace(mixer, window=mixer.window - 1))),
    "no sinks": ("gpt_oss", of_attention(lambda mixer: replace(mixer, sinks=""))),
    "sinks of another layer": (
        "gpt_oss",
        lambda r: of_attention(lambda mixer: replace(mixer, sinks=r.layers[0].mixer.sinks))(r),
    ),
    "an expert's gate that is not clamped": (
        "gpt_oss",
        of_mixture(lambda feed: replace(feed, each=replace(feed.each, activation="silu"))),
    ),
    "factor on logits": ("granite", lambda recipe: replace(recipe, logit_scale=1.0)),
}


def logits(found: Checkpoint, ids: list[int]) -> Tensor:
    model = host_model(found)
    return model.logits(model.forward(ids, 0)).clone()


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Checkpoint, Tensor]]:
    """A family's model and transformers' logits of a text, which those of the model are."""

    @cache
    def made(family: str) -> tuple[Checkpoint, Tensor]:
        folder = checkpoint(tmp_path_factory.mktemp(family) / "m", seed=5, **FAMILIES[family])
        found, theirs = Checkpoint.open(folder), reference(folder, TEXT)
        torch.testing.assert_close(logits(found, TEXT), theirs, atol=WITHIN, rtol=1e-4)
        return found, theirs

    return made


@pytest.mark.rotated(3)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{WRONG[wrong][0]}: {wrong}")
def test_a_wrong_detail_shows(wrong: str, right: Callable[[str], tuple[Checkpoint, Tensor]]) -> None:
    family, change = WRONG[wrong]
    found, theirs = right(family)
    changed = replace(found, config=replace(found.config, recipe=change(found.config.recipe)))
    assert (logits(changed, TEXT) - theirs).abs().max() > 20 * WITHIN


def test_the_last_layer_of_gemma_4_sees_all(tmp_path: Path) -> None:
    """As transformers has it, also where the file says something else."""
    changes = FAMILIES["gemma4"] | {"layer_types": ["sliding_attention"] * 4}
    folder, ids = checkpoint(tmp_path / "m", seed=5, **changes), tokens(40)
    torch.testing.assert_close(logits(Checkpoint.open(folder), ids), reference(folder, ids), atol=WITHIN, rtol=1e-4)


def test_layers_share_the_entries_of_the_last_owner_of_their_kind(tmp_path: Path) -> None:
    """Of six the last three; those of an earlier layer of the kind would be as wide."""
    kinds = ["sliding_attention", "full_attention"] * 3
    changes = {"num_hidden_layers": 6, "layer_types": kinds, "num_kv_shared_layers": 3, "sliding_window": 5}
    folder, ids = checkpoint(tmp_path / "m", seed=5, **FAMILIES["gemma4_e"] | changes), tokens(40)
    found, theirs = Checkpoint.open(folder), reference(folder, ids)
    mixers = [layer.mixer for layer in found.config.recipe.layers]
    assert [mixer.share for mixer in mixers] == [None, None, None, 1, 2, 1]
    assert [mixer.entry > 0 for mixer in mixers] == [True] * 3 + [False] * 3
    torch.testing.assert_close(logits(found, ids), theirs, atol=WITHIN, rtol=1e-4)
    *others, fourth, last = found.config.recipe.layers
    first = replace(fourth, mixer=replace(fourth.mixer, share=0))
    changed = replace(
        found, config=replace(found.config, recipe=replace(found.config.recipe, layers=(*others, first, last)))
    )
    assert (logits(changed, ids) - theirs).abs().max() > 20 * WITHIN


@pytest.mark.parametrize(
    ("share", "words"), [(3, "layer 3, which is not before it"), (2, "layer 2, which has none of")]
)
def test_entries_are_shared_of_owners_before_alone(share: int, words: str, tmp_path: Path) -> None:
    recipe = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["gemma4_e"])).config.recipe
    *others, third, last = recipe.layers
    last = replace(last, mixer=replace(last.mixer, share=share))
    with pytest.raises(ValueError, match=f"layer 3 shares the KV entries of {words}"):
        replace(recipe, layers=(*others, third, last))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"num_kv_shared_layers": 3},
            "num_kv_shared_layers is 3 of 4, and no layer of full_attention before them has KV entries",
        ),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers is 4 of 4, and no layer of sliding_attention before them"),
        ({"num_kv_shared_layers": 9}, "num_kv_shared_layers is 9 of 4, and no layer of sliding_attention before them"),
        (
            {"vocab_size_per_layer_input": 0},
            "hidden_size_per_layer_input is 16, and vocab_size_per_layer_input is missing",
        ),
    ],
)
def test_contradictions_about_layers_are_refused_in_a_sentence(
    changes: dict[str, int], words: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES["gemma4_e"])
    edit(folder, **changes)
    assert words in refusal(pair(folder))


def test_heads_of_single_layers_are_those_of_transformers(tmp_path: Path) -> None:
    """As its files have them, which name no global_head_dim."""
    own = {index: {"head_dim": 48, "num_key_value_heads": 4} for index in ("1", "3")}
    folder, ids = checkpoint(tmp_path / "m", seed=5, **FAMILIES["gemma4"] | {"per_layer_config": own}), tokens(40)
    found = Checkpoint.open(folder)
    shapes = [(layer.mixer.head_dim, layer.mixer.kv_heads) for layer in found.config.recipe.layers]
    assert shapes == [(16, 2), (48, 4)] * 2
    torch.testing.assert_close(logits(found, ids), reference(folder, ids), atol=WITHIN, rtol=1e-4)
