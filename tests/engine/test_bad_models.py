"""Checkpoints that cannot be used: one sentence that names the file or the model and what to do."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.api import Generate, Limits, Message, ModelSource, PairSpec, Speculation
from specchat.engine.errors import ContextError, EngineError, ModelError
from specchat.engine.session import Session, load
from tests.engine.tiny import SPECIAL, checkpoint, on_cpu


def pair(target: Path, draft: Path | None = None) -> PairSpec:
    return PairSpec("p", "P", on_cpu(target), on_cpu(draft) if draft else None)


def refusal(spec: PairSpec) -> str:
    with pytest.raises(ModelError) as caught:
        load(spec, lambda _: None)
    message = caught.value.message
    assert "\n" not in message
    assert message.endswith((".", ")"))
    return message


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def without(key: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        del config[key]
        (folder / "config.json").write_text(json.dumps(config))

    return change


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def no_norm(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def integers(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"].to(torch.int8)
    save_file(weights, folder / "model.safetensors")


def missing_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def escaping_shard(folder: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "is not a folder"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "does not hold a JSON object"),
    "key missing": (without("hidden_size"), "'hidden_size'"),
    "value wrong": (lambda f: edit(f, num_hidden_layers="four"), "num_hidden_layers"),
    "heads do not divide": (lambda f: edit(f, num_key_value_heads=3), "multiple"),
    "other architecture": (lambda f: edit(f, model_type="gpt2"), "'gpt2'"),
    "other activation": (lambda f: edit(f, hidden_act="gelu"), "'gelu'"),
    "unknown rope": (lambda f: edit(f, rope_scaling={"rope_type": "longrope"}), "'longrope'"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model.safetensors"),
    "pickled weights": (pickled, "pytorch_model.bin holds pickled weights"),
    "weights cut short": (truncated, "model.safetensors is damaged"),
    "weights are no safetensors": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "is damaged"),
    "tensor missing": (no_norm, "model.norm.weight is missing"),
    "shape wrong": (lambda f: edit(f, intermediate_size=113), "has shape [112, 64]"),
    "quantised": (integers, "quantised in a way that specchat does not know"),
    "shard missing": (missing_shard, "model-00001-of-00002.safetensors is named"),
    "shard outside the folder": (escaping_shard, "is named in"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "damaged tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot be read as a tokenizer"),
    "template does not parse": (
        lambda f: (f / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% for %}"})),
        "chat template does not parse",
    ),
    "vocabulary too small": (lambda f: shrink_vocabulary(f), "the tokenizer has 260 tokens, the model only 200"),
}


def shrink_vocabulary(folder: Path) -> None:
    checkpoint(folder, vocab_size=200)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_checkpoint_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    spoil, words = CASES[case]
    folder = checkpoint(tmp_path / "model")
    spoil(folder)
    message = refusal(pair(folder))
    assert words in message
    assert str(tmp_path) in message


def test_a_draft_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target")
    draft = checkpoint(tmp_path / "draft", special=["<|end|>", "<|user|>", "<|system|>", "<|assistant|>"])
    message = refusal(pair(target, draft))
    assert "tokenizer differs" in message
    assert str(draft) in message


def test_a_draft_padded_to_another_vocabulary_size_works(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", tie_word_embeddings=False)
    for name, size in (("small", 260), ("large", 320)):
        draft = checkpoint(tmp_path / name, vocab_size=size, tie_word_embeddings=False)
        session = load(pair(target, draft), lambda _: None)
        request = Generate(1, (Message("user", "hi"),), limits=Limits(20), speculation=Speculation("draft", 4))
        plain = replace(request, speculation=Speculation())
        drafted, alone = ([*session.generate(r)][-1] for r in (request, plain))
        assert drafted.token_ids == alone.token_ids  # type: ignore[union-attr]


def test_the_two_published_tokenizers_of_512_pieces_are_told_apart(shared_data: Path, tmp_path: Path) -> None:
    stories = shared_data / "checkpoints" / "stories260K"
    draft = checkpoint(tmp_path / "draft", special=[*SPECIAL, *(f"<extra{i}>" for i in range(252))], vocab_size=512)
    assert "tokenizer differs" in refusal(pair(stories, draft))


def test_a_pair_without_a_draft_says_so_when_asked_to_draft(tmp_path: Path) -> None:
    session = load(pair(checkpoint(tmp_path / "model", num_hidden_layers=2)), lambda _: None)
    for strategy, words in (("draft", "no draft model"), ("swift", "only 2 layers")):
        assert words in session.info.strategy(strategy).reason
        with pytest.raises(EngineError, match=words) as caught:
            next(session.generate(Generate(1, (Message("user", "x"),), speculation=Speculation(strategy, 3))))
        assert caught.value.kind == "request"


def test_a_chat_longer_than_the_context_is_refused_with_the_numbers(session: Session) -> None:
    with pytest.raises(ContextError, match=r"takes 303 tokens and Tiny holds 256"):
        next(session.generate(Generate(1, (Message("user", "x" * 300),))))


def test_backends_to_come_are_refused_by_name(tmp_path: Path) -> None:
    spec = replace(pair(tmp_path), backend="gguf")
    assert "'gguf'" in refusal(spec)


def test_a_repository_that_cannot_be_had_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EngineError) as caught:
        load(PairSpec("p", "P", ModelSource(repo="nobody/nothing")), lambda _: None)
    assert caught.value.kind == "download"
    assert "nobody/nothing" in caught.value.message
    assert "\n" not in caught.value.message
