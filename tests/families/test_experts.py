"""Mixtures of experts: every layout of their files, what config.json says of them, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.errors import ModelError
from specchat.engine.families.parts.family import described
from specchat.engine.heads.recipe import shape_of
from specchat.engine.llama_cpp import export
from specchat.engine.memory import gpu_need
from specchat.engine.memory.need import Model, need
from specchat.engine.memory.vectors import unsupported
from specchat.engine.recipe import Attention, Experts, Recipe
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import parse_config
from tests.cpu.test_decoder import whole
from tests.engine.layouts import MIXTRAL, renamed, stacked
from tests.engine.test_bad_models import edit, pair, refusal
from tests.engine.test_decoder import reference, tokens
from tests.engine.tiny import FAMILIES, checkpoint, config

KINDS = ("qwen3_moe", "qwen2_moe", "mixtral", "qwen3_5_moe", "qwen3_next")


def logits(folder: Path, ids: list[int]) -> Tensor:
    return whole(CpuDecoder(Checkpoint.open(folder)), ids)


def weights_changed(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def in_stacks(begins: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Stacks for experts, as modules of transformers 5 have them; Mixtral's names begin so after the layer's."""
    ours = {theirs: ours for ours, theirs in MIXTRAL.items()} | {".block_sparse_moe.": begins}
    return lambda weights: stacked(renamed(weights, ours) if begins else weights)


@pytest.mark.parametrize(
    ("kind", "begins"),
    [("qwen3_moe", ""), ("qwen3_5_moe", ""), ("mixtral", ".mlp."), ("mixtral", ".block_sparse_moe.")],
)
def test_stacks_are_the_experts_one_by_one(kind: str, begins: str, tmp_path: Path) -> None:
    folder, ids = checkpoint(tmp_path / "m", seed=3, **FAMILIES[kind]), tokens(40)
    expected = logits(folder, ids)
    weights_changed(folder, in_stacks(begins))
    assert any(name.endswith(".experts.down_proj") for name in load_file(folder / "model.safetensors"))
    assert torch.equal(logits(folder, ids), expected)
    torch.testing.assert_close(expected, reference(folder, ids), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_transformers_writes_are_read(kind: str, tmp_path: Path) -> None:
    """It says num_local_experts for most."""
    folder, ids = checkpoint(tmp_path / "m", seed=3, **FAMILIES[kind]), tokens(40)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).save_pretrained(tmp_path / "saved")
    assert ("num_experts" in json.loads((tmp_path / "saved" / "config.json").read_text())) == (
        kind in ("qwen2_moe", "qwen3_5_moe", "qwen3_next")
    )
    assert torch.equal(logits(tmp_path / "saved", ids), logits(folder, ids))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen3_moe", {"norm_topk_prob": False, "decoder_sparse_step": 2}),
        ("qwen3_moe", {"num_experts_per_tok": 5, "hidden_act": "gelu_pytorch_tanh"}),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}),
        ("qwen2_moe", {"use_sliding_window": False, "norm_topk_prob": True, "num_experts_per_tok": 3}),
        ("qwen2_moe", {"qkv_bias": False, "decoder_sparse_step": 2, "hidden_act": "gelu_pytorch_tanh"}),
        ("glm4_moe", {"n_group": 1, "topk_group": 1, "use_qk_norm": False, "norm_topk_prob": False}),
        ("glm4_moe", {"n_group": 2, "topk_group": 2, "first_k_dense_replace": 3, "n_shared_experts": 1}),
        ("mixtral", {"num_experts_per_tok": 1, "sliding_window": None}),
    ],
)
def test_variants_are_those_of_transformers(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    folder, ids = checkpoint(tmp_path / "m", seed=3, **FAMILIES[kind] | changes), tokens(60)
    torch.testing.assert_close(logits(folder, ids), reference(folder, ids), atol=2e-4, rtol=1e-4)


CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 99,
    "max_position_embeddings": 256,
}


def recipe(**changes: Any) -> Recipe:
    return parse_config(Path(), CONFIG | changes).recipe


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, [True, True, True, True]),
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, [False, False, False, True]),
        ({"num_experts": 0}, [False, False, False, False]),
    ],
)
def test_layers_have_experts_where_transformers_has_them(changes: dict[str, Any], sparse: list[bool]) -> None:
    assert [isinstance(layer.feed, Experts) for layer in recipe(**changes).layers] == sparse


def test_what_files_leave_out_is_as_in_transformers() -> None:
    for kind in KINDS:
        family = FAMILIES[kind]["model_type"]
        layers = recipe(model_type=family, num_attention_heads=16).layers
        found = next(layer for layer in layers if isinstance(layer.mixer, Attention))
        theirs = AutoConfig.for_model(family)
        assert isinstance(found.feed, Experts)
        assert found.feed.count == theirs.num_experts
        assert found.feed.top == theirs.num_experts_per_tok
        assert found.feed.renormalised == getattr(theirs, "norm_topk_prob", True)
        assert found.attention.kv_heads == theirs.num_key_value_heads
        assert found.norms[0].eps == theirs.rms_norm_eps
        assert found.attention.rope is not None
        assert found.attention.rope.theta == theirs.rope_parameters["rope_theta"]


def test_every_weight_of_every_expert_counts() -> None:
    made = recipe(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=48, mlp_only_layers=[2])
    assert made.parameters - made.embed.parameters - made.head.parameters - made.norm.size == sum(
        sum(matrix.parameters for matrix in layer.products) + sum(norm.size for norm in layer.norms)
        for layer in made.layers
    )
    sparse, dense = made.layers[0], made.layers[2]
    assert sparse.parameters - sparse.active == 3 * 3 * 48 * 64
    assert dense.parameters == dense.active


def test_an_mlp_beside_experts_is_read_by_every_row() -> None:
    made = parse_config(Path(), config(**FAMILIES["gemma4_moe"])).recipe.layers[0]
    assert isinstance(made.feed, Experts)
    assert made.parameters - made.active == 3 * 3 * 48 * 64
    assert made.feed.width == 2 * 48 + 112


def test_heads_are_made_as_wide_as_the_experts_of_a_row() -> None:
    assert described(recipe(num_experts_per_tok=3, moe_intermediate_size=48))["intermediate_size"] == 3 * 48


def test_what_runs_experts_and_what_cannot() -> None:
    config = parse_config(Path(), CONFIG)
    assert not gpu_need.unsupported(config)
    assert need(Model(config, "cuda"), 256).total > need(Model(config, "cuda", "nf4"), 256).total > 0  # for plans alike
    assert export.unsupported(config.recipe) == "a mixture of experts"
    assert not unsupported(config.recipe)
    assert not unsupported(recipe(moe_intermediate_size=40)), "sizes are filled"
    files = SimpleNamespace(folder=Path("somewhere"))
    with pytest.raises(ModelError, match="somewhere: the head's layers are mixtures of experts, and no such head"):
        shape_of(files, CONFIG)  # type: ignore[arg-type]


def without(part: str) -> Callable[[Path], None]:
    """Take the tensors away whose names hold `part`."""

    def spoil(folder: Path) -> None:
        weights_changed(folder, lambda weights: {name: one for name, one in weights.items() if part not in name})

    return spoil


def other_stack(folder: Path) -> None:
    """One expert more in a stack of one layer."""

    def change(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        made, name = in_stacks(".mlp.")(weights), "model.layers.1.mlp.experts.down_proj"
        return made | {name: torch.cat([made[name], made[name][:1]])}

    weights_changed(folder, change)


def halved_stack(folder: Path) -> None:
    """A stack of gates alone."""

    def change(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        made, name = in_stacks(".mlp.")(weights), "model.layers.1.mlp.experts.gate_up_proj"
        return made | {name: made[name].chunk(2, 1)[0].contiguous()}

    weights_changed(folder, change)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "none chosen": (
        lambda folder: edit(folder, num_experts_per_tok=0),
        "config.json: num_experts_per_tok is 0, not a number of experts from 1 to 1024",
    ),
    "more chosen than there are": (
        lambda folder: edit(folder, num_experts_per_tok=6),
        "config.json: num_experts_per_tok is 6, and a layer has 5 experts",
    ),
    "endless experts": (
        lambda folder: edit(folder, num_experts=10**9, num_local_experts=10**9),
        "experts is 1000000000, not a number of experts up to 1024",
    ),
    "fewer experts than in the files": (
        lambda folder: edit(folder, num_experts=4, num_local_experts=4),
        "gate.weight has shape [5, 64], config.json asks for [4, 64]",
    ),
    "an expert missing": (
        without(".experts.3."),
        "tensor model.layers.0.mlp.experts.3.gate_proj.weight is missing from the weights",
    ),
    "a router missing": (without(".gate.weight"), "tensor model.layers.0.mlp.gate.weight is missing"),
    "a stack of others": (
        other_stack,
        "tensor model.layers.1.mlp.experts.down_proj holds 6 experts, config.json asks for 5",
    ),
    "a stack of halves": (halved_stack, "has shape ["),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BAD)
def test_bad_experts_are_refused_in_a_sentence(case: str, kind: str, tmp_path: Path) -> None:
    spoil, words = BAD[case]
    folder = checkpoint(tmp_path / "m", **FAMILIES[kind])
    spoil(folder)
    message = refusal(pair(folder))
    assert words in message
    assert str(tmp_path) in message


BESIDE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no experts": (
        lambda folder: edit(folder, num_experts=0),
        "config.json: enable_moe_block asks for experts, and num_experts is missing",
    ),
    "nothing said of how many are chosen": (
        lambda folder: edit(folder, top_k_experts=None),
        "config.json: enable_moe_block asks for experts, and top_k_experts is missing",
    ),
    "none chosen": (
        lambda folder: edit(folder, top_k_experts=0),
        "config.json: top_k_experts is 0, not a number of experts from 1 to 1024",
    ),
    "more chosen than there are": (
        lambda folder: edit(folder, top_k_experts=6),
        "config.json: top_k_experts is 6, and a layer has 5 experts",
    ),
    "other stacks": (
        lambda folder: edit(folder, num_experts=4),
        "model.layers.0.experts.gate_up_proj holds 5 experts, config.json asks for 4",
    ),
    "no factors of experts": (
        without(".per_expert_scale"),
        "tensor model.layers.0.router.per_expert_scale is missing from the weights",
    ),
}


GROUPED: dict[str, tuple[dict[str, Any], str]] = {
    "groups of unlike sizes": ({"n_group": 3}, "n_group is 3, and 8 experts make no such groups of two or more"),
    "more groups than there are": ({"n_group": 1}, "topk_group is 2, and n_group is 1"),
    "groups of one": ({"n_group": 8}, "n_group is 8, and 8 experts make no such groups of two or more"),
    "more chosen than groups leave": (
        {"num_experts_per_tok": 5},
        "num_experts_per_tok is 5, and topk_group leaves 4 experts",
    ),
    "more chosen than there are": (
        {"num_experts_per_tok": 9, "n_group": 2},
        "num_experts_per_tok is 9, and a layer has 8 experts",
    ),
    "no experts": ({"n_routed_experts": 0, "n_group": 2}, "num_experts_per_tok is 3, and a layer has 0 experts"),
    "too much of a head": (
        {"partial_rotary_factor": 1.5},
        "partial_rotary_factor is 1.5, and heads of 32 values cannot rotate 48",
    ),
}


@pytest.mark.parametrize("case", GROUPED)
def test_bad_groups_of_experts_are_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    changes, words = GROUPED[case]
    folder = checkpoint(tmp_path / "m", **FAMILIES["glm4_moe"])
    edit(folder, **changes)
    assert words in refusal(pair(folder))


@pytest.mark.parametrize("case", BESIDE)
def test_bad_experts_beside_an_mlp_are_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    spoil, words = BESIDE[case]
    folder = checkpoint(tmp_path / "m", **FAMILIES["gemma4_moe"])
    spoil(folder)
    message = refusal(pair(folder))
    assert words in message
    assert str(tmp_path) in message


@pytest.mark.parametrize("kind", KINDS)
def test_a_router_of_no_numbers_is_refused_by_its_name_in_the_file(kind: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **FAMILIES[kind])
    name = next(name for name in load_file(folder / "model.safetensors") if name.endswith(".gate.weight"))
    weights_changed(folder, lambda weights: weights | {name: weights[name] * float("nan")})
    assert f"tensor {name} holds values that are no numbers" in refusal(pair(folder))


def test_an_empty_stack_of_endless_experts_is_refused(tmp_path: Path) -> None:
    folder, name = checkpoint(tmp_path / "m", **FAMILIES["qwen3_moe"]), "model.layers.0.mlp.experts.down_proj"
    weights_changed(folder, lambda weights: weights | {name: torch.zeros(10**9, 0, 0)})
    assert f"{name} holds 1000000000 experts" in refusal(pair(folder))
