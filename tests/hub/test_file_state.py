"""The state of a pair's files differs as soon as one of them is another."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.engine.fetch.file_state import file_state
from specchat.engine.protocol.pair import ModelSource, PairSpec

OWN = "model.safetensors", "config.json", "tokenizer_config.json", "chat_template.jinja"
FILES = [
    *(f"{folder}/{name}" for folder in ("target", "draft", "head", "exit") for name in OWN),
    "words.json",
    "q-00001-of-00002.gguf",
    "q-00002-of-00002.gguf",
    "blob",
]


@pytest.fixture
def pairs(tmp_path: Path) -> list[PairSpec]:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")

    def at(name: str) -> ModelSource:
        return ModelSource(path=str(tmp_path / name))

    whole = PairSpec(
        "a", "A", at("target"), at("draft"), heads={"eagle": at("head")}, exit=str(tmp_path / "exit"),
        draft_vocabulary=str(tmp_path / "words.json"),
    )  # fmt: skip
    return [whole, PairSpec("b", "B", at("q-00001-of-00002.gguf"), at("blob"))]


def replaced(file: Path) -> None:
    """Another file of the same size and time, as `cp -p` leaves it."""
    found = file.stat()
    (file.parent / "new").write_text("two")
    os.utime(file.parent / "new", ns=(found.st_atime_ns, found.st_mtime_ns))
    (file.parent / "new").replace(file)


def rewritten(file: Path) -> None:
    before = file.stat().st_mtime_ns
    file.write_text("two")
    os.utime(file, ns=(before + 1, before + 1))


@pytest.mark.parametrize("change", [Path.unlink, replaced, rewritten])
@pytest.mark.parametrize("name", FILES)
def test_every_file_counts(pairs: list[PairSpec], tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    before = [file_state(pair) for pair in pairs]
    assert [file_state(pair) for pair in pairs] == before
    change(tmp_path / name)
    assert sum(file_state(pair) != one for pair, one in zip(pairs, before, strict=True)) == 1


def test_files_that_are_not_read_do_not_count(pairs: list[PairSpec], tmp_path: Path) -> None:
    before = [file_state(pair) for pair in pairs]
    (tmp_path / "target" / "README.md").write_text("a")
    (tmp_path / "target" / "log.jsonl").write_text("a")
    (tmp_path / "other.gguf").write_text("a")
    assert [file_state(pair) for pair in pairs] == before


def test_a_newer_commit_of_a_repository_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--a--b"
    pair = PairSpec("a", "A", ModelSource(repo="a/b"))
    found = [file_state(pair)]
    (repo / "refs").mkdir(parents=True)
    for digit in "12":
        commit = repo / "snapshots" / (digit * 40)
        commit.mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            (commit / name).write_text("one")
        (repo / "refs" / "main").write_text(digit * 40)
        found.append(file_state(pair))
    assert len(set(found)) == 3
