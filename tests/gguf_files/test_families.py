"""Whole tiny models of every family as llama.cpp's converter writes them give the logits of their folders."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from measure.random_gguf import Kind, write
from specchat.engine.gguf.config import ARCHITECTURES
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.gguf import GgufCheckpoint
from specchat.engine.weights.weights import Weights
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint

pytestmark = pytest.mark.needs_gguf

SIXTH_FULL = ["sliding_attention"] * 5 + ["full_attention"]
CHANGES: dict[str, dict[str, Any]] = {
    "cohere2": {"head_dim": 16},
    "deepseek_v2": {"rope_scaling": FAMILIES["deepseek_v2"]["rope_scaling"] | {"mscale": 0.9}},
    "exaone4": {"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]},
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3": {"query_pre_attn_scalar": 32, "num_hidden_layers": 6, "layer_types": SIXTH_FULL},
    "glm4_moe_lite": {"first_k_dense_replace": 1},
    "lfm2_moe": {"rms_norm_eps": 1e-3, "routed_scaling_factor": 1.0},
    "mistral-window": {"sliding_window": None},
    "mixtral": {"sliding_window": None},
    "muse": {"post_norm_eps": 1e-8},
    "nemotron": {"head_dim": 16},
    "olmoe": {"norm_topk_prob": False},
    "qwen2_moe": {"use_sliding_window": False},
    "starcoder2": {"sliding_window": None},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
}
"""Settings that no GGUF file says: those that llama.cpp computes by."""
OTHERWISE = {"exaone4", "glm4_moe_lite", "gpt_oss", "phi3"}
"""llama.cpp knows windows of EXAONE 4 and the routing of GLM-4.7 Flash by their sizes, has no windows of Phi-3, and
rounds the bounds of gpt-oss's positions."""
UNLIKE = {
    *("deepseek_v2", "gemma", "olmoe", "qwen3_5", "qwen3_5_moe", "qwen3_next", "ernie4_5", "seed_oss"),
    *("nemotron_h", "nemotron_h-bias", "mamba2-plain"),
}
"""Shapes, kinds of layers in one model or biases that llama.cpp does not load."""


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "granitemoehybrid-dense": ("granitemoehybrid", {"num_local_experts": 0, "shared_intermediate_size": 48}),
    "granitemoehybrid-rope": ("granitemoehybrid", {"position_embedding_type": "rope", "rope_theta": 5000.0}),
    "nemotron_h-dense": ("nemotron_h", {"hybrid_override_pattern": "M-M*M-"}),
    "nemotron_h-bias": ("nemotron_h", {"hybrid_override_pattern": "M-M*M-", "mlp_bias": True, "use_bias": True}),
    "nemotron_h-experts": ("nemotron_h", {"hybrid_override_pattern": "MEMEM*EME"}),
    "mamba2-plain": ("mamba2", {"use_conv_bias": False, "n_groups": 1}),
}
"""Further models: a family and settings of it."""
WRITTEN = [*FAMILIES, *VARIANTS]


def settings(name: str) -> dict[str, Any]:
    family, changes = VARIANTS.get(name, (name, {}))
    told = FAMILIES[family] | CHANGES.get(family, {}) | changes
    return {key: value for key, value in told.items() if key != "mlp_only_layers"}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_gguf_file_gives_the_logits_of_its_folder(name: str, tmp_path: Path) -> None:
    folder, file = Checkpoint.open(checkpoint(tmp_path / "model", **settings(name))), tmp_path / "x.gguf"
    write(folder, file, "f32")
    opened, ids = Checkpoint.open(file), tokens(24)
    assert opened.format is None
    assert opened.dtype == torch.float32
    assert opened.config.parameters() == folder.config.parameters()
    ours, theirs = (logits(one, ids) for one in (opened, folder))
    assert theirs.std() > 0.3
    if opened.config.recipe.recurrent:  # the logarithm of a decay is rounded
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    else:
        assert torch.equal(ours, theirs)


@pytest.mark.needs_llama
@pytest.mark.parametrize("name", sorted({*WRITTEN} - OTHERWISE - UNLIKE))
def test_they_are_those_of_llama_cpp(name: str, tmp_path: Path) -> None:
    from specchat.engine.llama_cpp.context import GgufSettings
    from specchat.engine.llama_cpp.file import GgufFile
    from specchat.engine.llama_cpp.model import GgufModel

    file, ids = tmp_path / "x.gguf", tokens(40)
    write(Checkpoint.open(checkpoint(tmp_path / "model", **settings(name))), file, "f32")
    model = GgufModel(GgufFile(file, 0, lambda _: None, repack=False), GgufSettings(128, 1, "f32", False))
    theirs = torch.cat([model.forward([token], place).clone() for place, token in enumerate(ids)])
    ours = logits(Checkpoint.open(file), ids)
    # Gelu is a table of float16 there.
    assert (ours - theirs).abs().max() < 3e-3 * theirs.std()


def logits(checkpoint: Checkpoint, ids: list[int]) -> torch.Tensor:
    model = ReferenceDecoder(checkpoint, 128)
    return model.logits(model.forward(ids, 0))


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_5"])
def test_keys_and_names_of_ollamas_converter(name: str, tmp_path: Path) -> None:
    """It leaves out the width of experts, and has another name for a vector and heads of each layer."""

    def change(writer: Any) -> None:
        keys, tensors = writer.kv_data[0], writer.tensors[0]
        if keys.pop(f"{writer.arch}.expert_feed_forward_length", None) is None:
            heads = keys.pop(f"{writer.arch}.attention.head_count_kv").value
            kinds = folder.settings["layer_types"]
            writer.add_head_count_kv([heads * (kind == "full_attention") for kind in kinds])
        for stored in list(tensors):
            tensors[stored.replace("ssm_dt.bias", "ssm_dt")] = tensors.pop(stored)

    folder, file = Checkpoint.open(checkpoint(tmp_path / "model", **settings(name))), tmp_path / "x.gguf"
    write(folder, file, "f32", change=change)
    ours, theirs = (logits(one, tokens(24)) for one in (Checkpoint.open(file), folder))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_every_architecture_is_among_them(tmp_path: Path) -> None:
    seen = set()
    for name in WRITTEN:
        folder = tmp_path / name
        write(Checkpoint.open(checkpoint(folder, **settings(name))), folder / "x.gguf", "f32")
        seen.add(GgufCheckpoint.open(folder / "x.gguf").files.architecture)
    assert ARCHITECTURES.keys() - seen == {"qwen25vl", "qwen2vl", "qwen3vl", "qwen3vlmoe"}  # as those without images


@pytest.mark.parametrize("name", ["llama-gqa-untied", "qwen3_5", "qwen3_moe", "phi3-whole", "nemotron_h-experts"])
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantised_rows_and_columns_are_moved_as_blocks(name: str, kind: Kind, tmp_path: Path) -> None:
    """The logits are those of the values that the package reads, in the places where the folder has them."""
    widths = ("moe_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    shape = {"intermediate_size": 128} | dict.fromkeys(widths, 32)
    folder = Checkpoint.open(checkpoint(tmp_path / "model", **settings(name) | shape))
    write(folder, tmp_path / "x.gguf", kind)
    opened, ids = Checkpoint.open(tmp_path / "x.gguf"), tokens(30)
    assert opened.quant == "gguf"
    values = {}
    with Weights(opened) as weights:
        for stored in opened.gguf.sources if opened.gguf else ():
            shape_of = weights.shape(stored)
            values[stored] = weights.get(stored, *shape_of)
    save_file(values, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    ours, theirs = (logits(one, ids) for one in (opened, Checkpoint.open(tmp_path / "model")))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
