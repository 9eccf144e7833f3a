"""Checkpoints that cannot be used: one sentence that names the file or the model and what to do."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.backends import BACKENDS
from specchat.engine.errors import ContextError, EngineError, ModelError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.text.tokenizer import Tokenizer
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
    named_shards({"model.norm.weight": "model-00001-of-00002.safetensors"})(folder)


def escaping_shard(folder: Path) -> None:
    named_shards({"model.norm.weight": "../model.safetensors"})(folder)


def config_text(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(text)


def tokenizer_settings(**settings: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def tokenizer_changed(**parts: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        file = folder / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | parts))

    return change


def rope(**options: object) -> Callable[[Path], object]:
    return lambda folder: edit(folder, rope_scaling=options)


def weight(name: str, value: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights[name].view(-1)[-1] = value
        save_file(weights, folder / "model.safetensors")

    return change


def named_shards(map_: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": map_}))

    return change


def other_kind(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}
IFS = 5_000

CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "deep JSON": (config_text('{"a":' * 100_000), "config.json cannot be read as JSON (it is nested too deeply)"),
    "endless number": (config_text(f'{{"vocab_size": {"9" * 5_000}}}'), "config.json cannot be read as JSON (it holds"),
    "config is not UTF-8": (
        lambda f: (f / "config.json").write_bytes(b"{\xff}"),
        "config.json is not UTF-8 text (byte 1)",
    ),
    "map of shards is a list": (named_shards(["model.safetensors"]), "index.json: weight_map is ["),
    "name of a shard too long": (named_shards({"x": "x" * 5_000}), "which is no file beside it"),
    "name of a shard with a zero": (named_shards({"x": "x\0"}), "which is no file beside it"),
    "template is not UTF-8": (
        lambda f: (f / "chat_template.jinja").write_bytes(b"caf\xe9"),
        "chat_template.jinja is not UTF-8 text (byte 3)",
    ),
    "template too deep": (
        tokenizer_settings(chat_template="{% if a %}" * IFS + "{% endif %}" * IFS),
        "chat template does not parse: it is nested too deeply",
    ),
    "loops too deep for Python": (
        tokenizer_settings(chat_template="{% for a in b %}" * 60 + "{% endfor %}" * 60),
        "chat template does not parse",
    ),
    "template is a number": (tokenizer_settings(chat_template=5), "tokenizer_config.json: chat_template is neither"),
    "rope is a list": (lambda f: edit(f, rope_scaling=["linear"]), "config.json: rope_scaling is ['linear'], not"),
    "kind of rope is a list": (rope(rope_type=["linear"]), "rope_type is ['linear'], not a text"),
    "rope factor missing": (rope(rope_type="linear"), "config.json: key 'factor' is missing"),
    "rope factor is a text": (rope(rope_type="linear", factor="8"), "config.json: factor is '8', not a positive"),
    "rope factor is no number": (rope(rope_type="yarn", factor=float("nan")), "config.json: factor is nan, not a"),
    "rope option is a list": (rope(rope_type="yarn", factor=2.0, beta_fast=[1]), "config.json: beta_fast is [1]"),
    "rope factors the wrong way round": (rope(factor=8, **(LLAMA3 | {"low_freq_factor": 4})), "low_freq_factor is not"),
    "theta of zero": (lambda f: edit(f, rope_theta=0.0), "config.json: rope_theta is 0.0, not a positive number"),
    "theta that yarn cannot have": (lambda f: edit(f, rope_theta=1, rope_scaling={"type": "yarn"}), "yarn needs more"),
    "eps is no number": (lambda f: edit(f, rms_norm_eps=float("nan")), "config.json: rms_norm_eps is nan, not a"),
    "eps is negative": (lambda f: edit(f, rms_norm_eps=-1e-6), "config.json: rms_norm_eps is -1e-06, not a"),
    "head infinite": (lambda f: edit(f, head_dim=float("inf")), "config.json: head_dim is inf, not a positive whole"),
    "head odd": (lambda f: edit(f, head_dim=15), "config.json: attention heads have 15 values (head_dim)"),
    "context of 1": (lambda f: edit(f, max_position_embeddings=1), "max_position_embeddings is 1,"),
    "context of 2": (lambda f: edit(f, max_position_embeddings=2), "max_position_embeddings is 2,"),
    "window is a text": (lambda f: edit(f, model_type="mistral", sliding_window="4"), "sliding_window is '4', not a"),
    "size enormous": (lambda f: edit(f, hidden_size=10**400), "config.json: hidden_size is too large, not a positive"),
    "end of text is an object": (lambda f: edit(f, eos_token_id={"a": 1}), "config.json: eos_token_id is {'a': 1},"),
    "end of text is a text": (
        lambda f: (f / "generation_config.json").write_text('{"eos_token_id": "</s>"}'),
        "generation_config.json: eos_token_id is '</s>',",
    ),
    "embedding of NaN": (
        weight("model.embed_tokens.weight", float("nan")),
        "model.safetensors: tensor model.embed_tok",
    ),
    "matrix of infinity": (
        weight("model.layers.3.mlp.up_proj.weight", float("-inf")),
        "model.safetensors: tensor model.layers.3.mlp.up_proj.weight holds values that are no numbers",
    ),
    "norm of NaN": (weight("model.norm.weight", float("nan")), "tensor model.norm.weight holds values that are no"),
    "tokenizer panics when read": (
        tokenizer_changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "//////8="}),
        "tokenizer.json cannot be read as a tokenizer",
    ),
    "tokenizer panics when used": (
        tokenizer_changed(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "tokenizer.json cannot split a text into tokens (chunk size must be non-zero)",
    ),
    "normalizer panics": (
        tokenizer_changed(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "x"}),
        "tokenizer.json cannot split a text into tokens",
    ),
    "no folder": (shutil.rmtree, "is not there: it was moved or deleted"),
    "a pipe": (lambda f: (shutil.rmtree(f), os.mkfifo(f)), "is not a folder. Give the folder that holds"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "does not hold a JSON object"),
    "key missing": (without("hidden_size"), "'hidden_size'"),
    "value wrong": (lambda f: edit(f, num_hidden_layers="four"), "num_hidden_layers"),
    "heads do not divide": (lambda f: edit(f, num_key_value_heads=3), "multiple"),
    "other architecture": (lambda f: edit(f, model_type="gpt9"), "'gpt9'"),
    "unknown rope": (lambda f: edit(f, rope_scaling={"rope_type": "dynamic"}), "'dynamic'"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "holds no model.safetensors"),
    "pickled weights": (pickled, "pytorch_model.bin holds pickled weights"),
    "weights cut short": (truncated, "model.safetensors is damaged"),
    "weights are no safetensors": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "is damaged"),
    "tensor missing": (no_norm, "model.norm.weight is missing"),
    "shape wrong": (lambda f: edit(f, intermediate_size=113), "has shape [112, 64]"),
    "quantised": (integers, "quantised in a way that specchat does not know"),
    "no index": (
        lambda f: (f / "model.safetensors").rename(f / "model-00001-of-00001.safetensors"),
        "holds neither model.safetensors nor model.safetensors.index.json",
    ),
    "shard missing": (missing_shard, "model-00001-of-00002.safetensors is named"),
    "shard outside the folder": (escaping_shard, "names '../model.safetensors', which is no file beside it"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "damaged tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot be read as a tokenizer"),
    "template does not parse": (
        lambda f: (f / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% for %}"})),
        "chat template does not parse",
    ),
}


FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
         "model.safetensors", "model.safetensors.index.json")  # fmt: skip
KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_only_regular_files_are_read(name: str, kind: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    if name.endswith("index.json"):  # which is not looked at beside one whole file
        (folder / "model.safetensors").unlink()
    other_kind(name, KINDS[kind])(folder)
    assert f"{folder / name} is not a regular file" in refusal(pair(folder))


def test_files_behind_links_are_read(tmp_path: Path) -> None:
    """As in the Hugging Face cache."""
    folder = checkpoint(tmp_path / "blobs")
    (tmp_path / "model").mkdir()
    for file in folder.iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    assert load(pair(tmp_path / "model"), lambda _: None).info.target.vocabulary == 260


def test_a_list_of_templates_without_one_for_chats_is_none(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    tokenizer_settings(chat_template=[None, {"name": "tools", "template": "x"}])(folder)
    assert Tokenizer.read(folder).template is None


def test_what_training_left_in_a_tokenizer_does_not_cut_prompts(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    tokenizer_changed(
        truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 8},
        padding={"strategy": {"Fixed": 99}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},
    )(folder)
    assert len(Tokenizer.read(folder).prompt([Message("user", "hello there")])) == len("hello there") + 3


@pytest.mark.parametrize("repo", ["../..", "a/b/c", "x" * 200])
def test_a_name_that_is_no_repositorys_is_refused(repo: str) -> None:
    spec = PairSpec("p", "P", ModelSource(repo=repo))
    assert f'repo = "{repo}" is no repository' in refusal(spec)


@pytest.mark.parametrize("case", CASES)
def test_a_bad_checkpoint_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    spoil, words = CASES[case]
    folder = checkpoint(tmp_path / "model")
    spoil(folder)
    message = refusal(pair(folder))
    assert words in message
    assert str(tmp_path) in message


def test_a_draft_padded_to_another_vocabulary_size_works(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", tie_word_embeddings=False)
    for name, size in (("small", 260), ("large", 320)):
        draft = checkpoint(tmp_path / name, vocab_size=size, tie_word_embeddings=False)
        session = load(pair(target, draft), lambda _: None)
        request = Generate(1, (Message("user", "hi"),), limits=Limits(20), speculation=Speculation("draft", 4))
        plain = replace(request, speculation=Speculation())
        drafted, alone = ([*session.generate(r)][-1] for r in (request, plain))
        assert drafted.token_ids == alone.token_ids  # type: ignore[union-attr]


def test_a_draft_that_lacks_rows_of_the_target_is_fed_others(tmp_path: Path) -> None:
    """A random target chooses its padding rows as well."""
    target = checkpoint(tmp_path / "target", vocab_size=400, tie_word_embeddings=False)
    draft = checkpoint(tmp_path / "draft", tie_word_embeddings=False)
    session = load(pair(target, draft), lambda _: None)
    padding = 0
    for seed in range(3):
        request = Generate(1, (Message("user", "hi"),), Sampling(seed=seed, temperature=1.5), Limits(40))
        drafted, alone = (
            [*session.generate(replace(request, speculation=s))][-1] for s in (Speculation("draft", 4), Speculation())
        )
        assert isinstance(drafted, Finished)
        assert isinstance(alone, Finished)
        assert drafted.token_ids == alone.token_ids
        padding += sum(token >= 260 for token in alone.token_ids)
    assert padding > 10


def test_the_two_published_tokenizers_of_512_pieces_are_told_apart(shared_data: Path, tmp_path: Path) -> None:
    stories = shared_data / "checkpoints" / "stories260K"
    draft = checkpoint(tmp_path / "draft", special=[*SPECIAL, *(f"<extra{i}>" for i in range(252))], vocab_size=512)
    assert "the draft's tokens differ" in load(pair(stories, draft), lambda _: None).info.notes.note


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


def test_a_backend_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    assert refusal(replace(pair(tmp_path), backend="mlx")) == 'p: there is no backend "mlx" (native, gguf, hf, remote).'


def test_every_backend_has_a_loader() -> None:
    for place in BACKENDS.values():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function))


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


def test_settings_without_a_cache_in_transformers_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", model_type="qwen3", head_dim=32)
    edit(folder, layer_types=["chunked_attention"] * 4)
    assert "cannot be run: transformers says: " in refusal(pair(folder))
