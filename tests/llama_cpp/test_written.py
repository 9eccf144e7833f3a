"""What GGUF files hold, read by the package gguf alone: weights, shape, vocabulary. No llama.cpp is needed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from tokenizers import pre_tokenizers
from torch import Tensor

from specchat.cli.root import specchat
from specchat.config.paths import demo_model
from specchat.engine.errors import EngineError, ModelError
from specchat.engine.llama_cpp.export import KINDS, TENSOR_NAMES, Kind, architecture, export, unsupported
from specchat.engine.recipe import Gated, Matrix, Norm, Recipe
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.tiny import byte_fallback, checkpoint
from tests.llama_cpp.conftest import byte_tokenizer
from tests.llama_cpp.test_export import FAMILIES, WIDE

pytestmark = pytest.mark.needs_gguf

THEIRS = {"qwen2": "qwen2", "mimo": "qwen2", "qwen3": "qwen3"}
"""llama.cpp's names of families that are not llama to it."""
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, str]]:
    """Tensors as float32, metadata, and what each tensor is stored as."""
    import gguf

    reader = gguf.GGUFReader(file)
    tensors = {
        t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).float() for t in reader.tensors
    }
    values = {name: field.contents() for name, field in reader.fields.items()}
    return tensors, values, {t.name: t.tensor_type.name for t in reader.tensors}


def their_name(ours: str) -> str:
    if ours in OUTER:
        return OUTER[ours]
    _, _, index, *_, part, kind = ours.split(".")
    return f"blk.{index}.{TENSOR_NAMES[part]}.{kind}"


def turned(rows: Tensor, heads: int) -> Tensor:
    """Row i of the first half of a head becomes row 2i, row i of the second half row 2i + 1."""
    size = len(rows) // heads
    order = [head * size + half * (size // 2) + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]
    return rows[order]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_written_once_and_as_it_is(family: str, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "model", **WIDE | FAMILIES[family]))
    export(opened, tmp_path / "x.gguf", "f32", tokenizer=False)
    written, values, _ = read(tmp_path / "x.gguf")
    c, theirs = opened.config, THEIRS.get(opened.config.family, "llama")
    mixer, width = c.recipe.layers[0].mixer, c.recipe.layers[0].feed.width
    assert mixer.rope is not None
    pairs = {"attn_q": mixer.heads, "attn_k": mixer.kv_heads} if theirs == "llama" else {}
    extra = {"rope_freqs.weight"} if mixer.rope.kind == "llama3" else set()
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert set(written) == {their_name(name) for name in weights} | extra
    for name, weight in weights.items():
        heads = pairs.get(their_name(name).split(".")[-2])
        assert torch.equal(written[their_name(name)], turned(weight, heads) if heads else weight), name
    assert values["general.architecture"] == theirs == architecture(c.recipe)
    for key, value in {
        "context_length": c.context,
        "embedding_length": c.hidden,
        "block_count": c.layers,
        "feed_forward_length": width,
        "attention.head_count": mixer.heads,
        "attention.head_count_kv": mixer.kv_heads,
        "attention.key_length": mixer.head_dim,
        "rope.dimension_count": mixer.head_dim,
        "vocab_size": c.vocab,
    }.items():
        assert values[f"{theirs}.{key}"] == value, key
    assert values[f"{theirs}.rope.freq_base"] == pytest.approx(mixer.rope.theta)
    assert values[f"{theirs}.attention.layer_norm_rms_epsilon"] == pytest.approx(c.recipe.norm.eps)
    assert values.get(f"{theirs}.rope.scaling.factor") == (4.0 if family == "linear" else None)


@pytest.mark.parametrize(("kind", "step"), [("f16", 0.0), ("q8_0", 0.5 / 127), ("q4_0", 1 / 8)])
def test_weights_of_fewer_bits_are_as_near_as_these_allow(tmp_path: Path, kind: Kind, step: float) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "model", **WIDE))
    for name in ("f32", kind):
        export(opened, tmp_path / f"{name}.gguf", name, tokenizer=False)
    exact, _, _ = read(tmp_path / "f32.gguf")
    made, values, stored = read(tmp_path / f"{kind}.gguf")
    assert values["general.file_type"] == {"f16": 1, "q8_0": 7, "q4_0": 2}[kind]
    for name, weight in exact.items():
        form = "F32" if weight.dim() == 1 else "Q8_0" if kind == "q4_0" and "blk" not in name else kind.upper()
        assert stored[name] == form
        if form == "F32":
            assert torch.equal(made[name], weight)
            continue
        blocks, rounded = weight.unflatten(-1, (-1, 32)), made[name].unflatten(-1, (-1, 32))
        # The scale itself is a float16.
        share = (0.5 / 127 if form == "Q8_0" else step) + 2**-11
        assert bool(((rounded - blocks).abs() <= share * blocks.abs().amax(-1, keepdim=True)).all()), name
        assert not torch.equal(rounded, blocks)


def test_rows_that_no_block_fills_are_stored_as_float16(tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint(tmp_path / "model"))  # 112 inputs of down_proj are no whole blocks of 32
    export(opened, tmp_path / "x.gguf", "q4_0", tokenizer=False)
    _, _, stored = read(tmp_path / "x.gguf")
    assert {stored[name] for name in stored if "ffn_down" in name} == {"F16"}
    assert {stored[name] for name in stored if "ffn_up" in name} == {"Q4_0"}


def test_the_vocabulary_is_the_tokenizer_s(tmp_path: Path) -> None:
    import gguf

    folder = checkpoint(tmp_path / "model", backend=byte_tokenizer(), vocab_size=270, eos_token_id=257)
    opened = Checkpoint.open(folder)
    export(opened, tmp_path / "x.gguf", "f16")
    _, values, _ = read(tmp_path / "x.gguf")
    tokenizer = opened.tokenizer()
    tokens, kinds = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    assert len(tokens) == len(kinds) == 270
    assert {text: i for i, text in enumerate(tokens) if kinds[i] != gguf.TokenType.UNUSED} == tokenizer.vocabulary
    special = {i for i, kind in enumerate(kinds) if kind == gguf.TokenType.CONTROL}
    assert special == set(tokenizer.backend.get_added_tokens_decoder())
    assert values["tokenizer.ggml.merges"] == ["t h"]
    assert (values["tokenizer.ggml.model"], values["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    assert {values["tokenizer.ggml.eos_token_id"]} == tokenizer.eos
    assert "<|assistant|>" in values["tokenizer.chat_template"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_writes_the_pair_and_tells_how_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    out = tmp_path / "out"
    result = CliRunner().invoke(specchat, ["convert", "demo", "--to", "gguf", "--out", str(out), "--type", kind])
    assert result.exit_code == 0, result.output
    for role in ("target", "draft"):
        file = out / f"demo-{role}-{kind}.gguf"
        assert f'{role} = {{ path = "{file}" }}' in result.output
        _, values, _ = read(file)
        assert values["llama.block_count"] == Checkpoint.open(demo_model(role)).config.layers
    assert len(list(out.iterdir())) == 2


def in_last(**changes: Any) -> Callable[[Recipe], Recipe]:
    """A change of the last layer: one is enough."""

    def changed(recipe: Recipe) -> Recipe:
        *others, last = recipe.layers
        own = {name: value for name, value in changes.items() if hasattr(last, name)}
        mixer = replace(last.mixer, **{name: value for name, value in changes.items() if name not in own})
        return replace(recipe, layers=(*others, replace(last, mixer=mixer, **own)))

    return changed


MATRIX = Matrix(("m",), (112,), 112)
UNSUPPORTED: list[tuple[str, Callable[[Recipe], Recipe]]] = [
    ("a model whose layers differ", in_last(rope=None)),
    ("a model whose layers differ", in_last(kv_heads=1)),
    ("attention within a window", in_last(window=8)),
    ("another activation than silu", in_last(feed=Gated(MATRIX, MATRIX, "gelu_tanh"))),
    ("queries that grow with their position", in_last(temper=(0.1, 8.0))),
    ("attention sinks", in_last(sinks="s")),
    ("a norm of values", in_last(value_norm=Norm("", 16, 1e-6))),
    ("a factor at the end of a layer", in_last(scalar="s")),
    ("a norm whose weight the file holds less one", in_last(pre_feed=Norm("n", 64, 1e-6, plus_one=True))),
    ("a cap on logits", lambda recipe: replace(recipe, cap=30.0)),
    ("a norm after a sub-layer", in_last(post_feed=Norm("n", 64, 1e-6))),
    ("a factor on embeddings, scores, residuals or logits", in_last(scale=0.3)),
    ("a factor on embeddings, scores, residuals or logits", in_last(residual=0.3)),
    ("a factor on embeddings, scores, residuals or logits", lambda recipe: replace(recipe, logit_scale=0.5)),
    ("a norm of all heads", in_last(query_norm=Norm("q", 64, 1e-6), key_norm=Norm("k", 64, 1e-6))),
]


@pytest.mark.parametrize(("feature", "change"), UNSUPPORTED)
def test_a_feature_that_is_not_written_is_named(
    feature: str, change: Callable[[Recipe], Recipe], tmp_path: Path
) -> None:
    recipe = Checkpoint.open(checkpoint(tmp_path)).config.recipe
    assert not unsupported(recipe)
    assert unsupported(change(recipe)) == feature


def test_what_is_not_written_leaves_nothing_behind(tmp_path: Path) -> None:
    split = byte_fallback()
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    other = checkpoint(tmp_path / "pieces", backend=split, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"of a kind that is not written to GGUF here.*convert_hf_to_gguf"):
        export(Checkpoint.open(other), tmp_path / "new" / "x.gguf", "f32")
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    yarn = checkpoint(tmp_path / "yarn", rope_scaling=scaling)
    with pytest.raises(EngineError, match="yarn"):
        export(Checkpoint.open(yarn), tmp_path / "new" / "x.gguf", "f32", tokenizer=False)
    damaged = checkpoint(tmp_path / "damaged", intermediate_size=112)
    settings = json.loads((damaged / "config.json").read_text()) | {"intermediate_size": 128}
    (damaged / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="shape"):
        export(Checkpoint.open(damaged), tmp_path / "new" / "x.gguf", "f32", tokenizer=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "pieces", "yarn"]
