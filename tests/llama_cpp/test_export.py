"""Checkpoints as GGUF files: the export against others' formulas, then what llama.cpp makes of it."""

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import EngineError
from specchat.engine.llama_cpp.export import export, llama3_factors, pairwise
from specchat.engine.recipe import Rope
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import checkpoint

# The layout that llama.cpp rotates.


def test_turning_neighbours_in_the_exported_rows_is_turning_halves_in_ours() -> None:
    heads, dim, hidden = 3, 8, 5
    rows, x = torch.randn(heads * dim, hidden, dtype=torch.float64), torch.randn(hidden, dtype=torch.float64)
    angle = torch.rand(dim // 2, dtype=torch.float64) * 6
    cos, sin = angle.cos(), angle.sin()
    a, b = (rows @ x).view(heads, 2, dim // 2).unbind(1)
    ours = torch.stack((a * cos - b * sin, b * cos + a * sin), 1)
    c, d = (pairwise(rows, heads) @ x).view(heads, dim // 2, 2).unbind(2)
    theirs = torch.stack((c * cos - d * sin, d * cos + c * sin), 1)
    torch.testing.assert_close(theirs, ours)


def test_architectures_that_turn_halves_keep_their_rows() -> None:
    rows = torch.randn(8, 3)
    assert pairwise(rows, None) is rows


def test_frequencies_of_llama_3_are_divided_as_transformers_divides_them() -> None:
    options = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    scaled = {"rope_type": "llama3", "rope_theta": 500000.0, **options}
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=1, head_dim=128, max_position_embeddings=131072, rope_parameters=scaled
    )
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 500000.0 ** -(torch.arange(0, 128, 2, dtype=torch.float64) / 128)
    torch.testing.assert_close((plain / llama3_factors(Rope(500000.0, "llama3", 128, options))).float(), expected)


def test_without_gguf_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "gguf":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EngineError, match="gguf, which is not installed"):
        export(Checkpoint.open(checkpoint(tmp_path)), tmp_path / "x.gguf", "f32", tokenizer=False)


# llama.cpp itself.

WIDE = {"hidden_size": 64, "intermediate_size": 128}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "tie_word_embeddings": False},
    "llama-3": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 2},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 32},
    "mimo": {"model_type": "mimo", "num_key_value_heads": 2, "attention_bias": True},
}


def exact_logits(file: Path, tokens: list[int]) -> Tensor:
    """llama.cpp's logits after the last token, computed and cached in float32."""
    import llama_cpp

    model = llama_cpp.Llama(
        str(file), n_ctx=256, logits_all=True, type_k=0, type_v=0, n_threads=1, n_threads_batch=1, verbose=False
    )
    model.eval(tokens)
    logits = torch.from_numpy(model.scores[len(tokens) - 1].copy())
    model.close()
    return logits


@pytest.mark.needs_llama
@pytest.mark.parametrize("family", list(FAMILIES))
def test_logits_of_every_family_are_ours(family: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", **WIDE | FAMILIES[family])
    export(Checkpoint.open(folder), tmp_path / "x.gguf", "f32", tokenizer=False)
    tokens = [int(t) for t in torch.randint(0, 256, (100,), generator=torch.Generator().manual_seed(1))]
    decoder = ReferenceDecoder(Checkpoint.open(folder))
    expected = CachedModel(decoder).next_logits(tokens)
    torch.testing.assert_close(exact_logits(tmp_path / "x.gguf", tokens), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.needs_llama
def test_weights_quantised_on_load_are_exported_quantised(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", **WIDE)
    export(Checkpoint.open(folder), tmp_path / "x.gguf", "f32", "nf4", tokenizer=False)
    tokens = list(range(60, 90))
    decoder = ReferenceDecoder(Checkpoint.open(folder), quant="nf4")
    expected = CachedModel(decoder).next_logits(tokens)
    torch.testing.assert_close(exact_logits(tmp_path / "x.gguf", tokens), expected, atol=1e-3, rtol=1e-3)
