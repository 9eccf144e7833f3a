"""Tokens and templates from every file of a checkpoint, as transformers puts them together."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from specchat.engine.errors import ModelError
from specchat.engine.protocol.options import Message
from specchat.engine.text.habits import habits
from specchat.engine.text.tokenizer import Tokenizer
from tests.engine.tiny import TEMPLATE, checkpoint

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|done|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
FLAGS = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}


def token(text: str, **flags: bool) -> dict[str, Any]:
    return {"content": text, "special": True, **FLAGS, **flags}


def written(folder: Path, settings: Mapping[str, Any], files: Mapping[str, Any]) -> Path:
    """A checkpoint whose tokenizer knows fewer tokens than its other files name."""
    checkpoint(folder, num_hidden_layers=1)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, value in files.items():
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


DECODER = {"260": token("<|turn|>"), "261": token("<|done|>"), "262": token("<|begin|>")}
CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tokens in tokenizer_config.json": (
        {"chat_template": CHATML, "added_tokens_decoder": DECODER, "bos_token": "<|begin|>", "eos_token": "<|done|>"},
        {},
    ),
    "flags that differ": (
        {"chat_template": CHATML, "added_tokens_decoder": DECODER | {"257": token("<|system|>", lstrip=True)}},
        {},
    ),
    "names in special_tokens_map.json": (
        {"chat_template": CHATML, "bos_token": None},
        {"special_tokens_map.json": {"bos_token": token("<|begin|>"), "eos_token": "<|end|>"}},
    ),
    "more special tokens": (
        {"chat_template": CHATML, "additional_special_tokens": ["<|turn|>", "<|done|>"], "eos_token": "<|end|>"},
        {},
    ),
    "tokens of an older file": (
        {"chat_template": CHATML, "eos_token": "<|done|>"},
        {"added_tokens.json": {"<|turn|>": 260, "<|done|>": 261}},
    ),
    "a named token that nothing adds": ({"chat_template": CHATML, "bos_token": "<|begin|>"}, {}),
    "a template of its own": ({"eos_token": "<|end|>"}, {"chat_template.jinja": CHATML}),
    "a template in both places": ({"chat_template": TEMPLATE, "eos_token": "<|end|>"}, {"chat_template.jinja": CHATML}),
    "named templates": (
        {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]},
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_prompts_are_transformers_own(case: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", *CASES[case])
    theirs = AutoTokenizer.from_pretrained(folder)
    mine = Tokenizer.read(folder)
    turns = [{"role": "user", "content": "Hi  there"}, {"role": "assistant", "content": "Yes?"}, {"role": "user"}]
    turns[2]["content"] = "<b>é</b>"
    expected = theirs.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert mine.prompt([Message(turn["role"], turn["content"]) for turn in turns]) == expected  # type: ignore[arg-type]
    for name in ("bos_token", "eos_token"):
        assert mine.special.get(name) == getattr(theirs, name)
    assert (theirs.eos_token_id is None) or theirs.eos_token_id in mine.eos


def test_a_processors_template_is_read(tmp_path: Path) -> None:
    """transformers' tokenizers leave chat_template.json to the processor, which reads it."""
    folder = written(tmp_path / "model", {"eos_token": "<|end|>"}, {"chat_template.json": {"chat_template": TEMPLATE}})
    with_it = Tokenizer.read(checkpoint(tmp_path / "other", num_hidden_layers=1))
    assert Tokenizer.read(folder).prompt([Message("user", "Hi")]) == with_it.prompt([Message("user", "Hi")])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "this checkpoint has no chat template"),
        (
            {"chat_template": [{"name": "rag", "template": "x"}]},
            "has chat templates named rag, and none is the default",
        ),
    ],
)
def test_a_checkpoint_without_a_template_says_so(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.read(written(tmp_path / "model", settings, {}))
    assert words in dict(habits(tokenizer))["template"]


def read_or_refused(folder: Path, name: str) -> bool:
    """Whether the tokenizer works, or is refused in words that name the file."""
    try:
        tokenizer = Tokenizer.read(folder)
    except ModelError as error:
        return name in error.message
    return len(tokenizer.prompt([Message("user", "a")])) > 0


@pytest.mark.parametrize(
    "files",
    [
        {"special_tokens_map.json": ["<|end|>"]},
        {"added_tokens.json": "{"},
        {"chat_template.json": {"chat_template": 1}},
        {"special_tokens_map.json": {"bos_token": {"content": 7}, "additional_special_tokens": [1, None, {"x": 1}]}},
    ],
)
def test_files_of_other_shapes_are_refused_or_left_out(files: dict[str, Any], tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {}, files)
    assert read_or_refused(folder, next(iter(files)))


@pytest.mark.parametrize("decoder", [{"x": token("<|a|>")}, {"260": {"content": "<|a|>", "lstrip": "yes"}}, [1]])
def test_declared_tokens_of_other_shapes_are_refused_or_left_out(decoder: object, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {"added_tokens_decoder": decoder, "chat_template": TEMPLATE}, {})
    assert read_or_refused(folder, "tokenizer_config.json")
