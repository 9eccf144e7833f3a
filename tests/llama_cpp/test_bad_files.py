"""Files that cannot be loaded are told in a sentence, and the engine survives them."""

import builtins
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gguf.files import file_parts, first_part
from specchat.engine.llama_cpp import library, trial
from specchat.engine.llama_cpp.library import PACKAGE
from specchat.engine.loading import load
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import GgufOptions, ModelSource, PairSpec
from specchat.installing import install_command
from tests.llama_cpp.conftest import loaded, pair
from tests.models.made import gguf

needs_llama = pytest.mark.needs_llama


def refused(target: Path, draft: Path | None = None) -> str:
    """The sentence with which a pair is refused; room is made for it only once its files are known to be good."""

    def make_room() -> None:
        raise AssertionError("the pair before was given up")

    with pytest.raises(EngineError) as caught:
        load(pair(target, draft), lambda _: None, make_room)
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    return caught.value.message


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def renamed(data: bytes) -> bytes:
    """Of an architecture that nobody knows."""
    value = struct.pack("<Q", len(b"llama")) + b"llama"
    assert value in data
    return data.replace(value, struct.pack("<Q", len(b"lhama")) + b"lhama", 1)


def with_epsilon(data: bytes, value: float) -> bytes:
    key = b"llama.attention.layer_norm_rms_epsilon"
    at = data.index(key) + len(key) + 4  # behind the number of its kind
    return data[:at] + struct.pack("<f", value) + data[at + 4 :]


DAMAGES: dict[str, tuple[Callable[[bytes], bytes] | float, str]] = {
    "empty": (lambda _: b"", "is no GGUF file, or it was cut short"),
    "another format": (lambda _: b"PK\x03\x04 and so on", "is no GGUF file"),
    "the magic alone": (lambda data: data[:4], "is damaged: it ends in its header"),
    "cut in the header": (lambda data: data[:200], "is damaged: it ends in its header"),
    "cut in the weights": (cut, "is damaged: it is cut off"),
    "another version": (lambda data: data[:4] + struct.pack("<I", 99) + data[8:], "is damaged: version 99"),
    "an unknown architecture": (renamed, "unknown model architecture: 'lhama'"),
    "more tensors than there are": (
        lambda data: data[:8] + struct.pack("<Q", 1 << 60) + data[16:],
        "is damaged: it says it has 1152921504606846976 tensors",
    ),
    "a share that is no number": (float("nan"), "layer_norm_rms_epsilon is nan"),
    "a share without end": (float("inf"), "layer_norm_rms_epsilon is inf"),
    "a share below nothing": (-1.0, "llama.cpp did not survive it"),
}


@needs_llama
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_in_a_sentence(files: tuple[Path, Path], tmp_path: Path, damage: str) -> None:
    change, words = DAMAGES[damage]
    file, data = tmp_path / "x.gguf", files[0].read_bytes()
    file.write_bytes(with_epsilon(data, change) if isinstance(change, float) else change(data))
    told = refused(file)
    assert str(file) in told
    assert words in told
    assert "does not say why" not in told
    assert refused(files[0], file) == told


@needs_llama
def test_no_damage_to_a_header_ends_the_engine(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Each is refused in a sentence, or loads: some bytes say nothing that matters."""
    data, dice = files[0].read_bytes(), random.Random(7)
    header = data.index(b"token_embd.weight") + 600
    file, told = tmp_path / "x.gguf", set()
    for _ in range(24):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 8))):
            changed[dice.randrange(4, header)] = dice.randrange(256)
        file.write_bytes(changed)
        try:
            trial.try_file(file)
        except ModelError as error:
            told.add(error.message)
    assert len(told) > 5
    assert all(message.startswith(f"{file} cannot be loaded: ") for message in told)


@needs_llama
def test_a_file_that_ends_the_process_that_opens_it_is_told(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial.sys, "executable", "/bin/false")
    assert "llama.cpp did not survive it" in refused(files[0])


@needs_llama
def test_weights_are_taken_as_they_are_stored_where_arranging_them_ends_the_process(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trial._survived
    monkeypatch.setattr(trial, "_survived", lambda file, way, within: way != "arranged" and real(file, way, within))
    assert not trial.try_file(files[0])
    assert loaded(files[0], files[1]).info.strategy("draft").available


@needs_llama
def test_all_parts_of_a_split_file_are_asked_for(files: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = file_parts(tmp_path / "x-00002-of-00002.gguf")
    assert [first.name, second.name] == ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]
    second.write_bytes(files[0].read_bytes())
    assert "1 of 2 parts are missing (x-00001-of-00002.gguf)" in refused(second)
    first.write_bytes(files[0].read_bytes())
    assert first_part(second) == first


@needs_llama
def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_type("adapter")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "it is no model by itself, but of the kind adapter" in refused(tmp_path / "x.gguf")


@needs_llama
def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    assert "is missing. Give the .gguf file" in refused(tmp_path / "x.gguf")
    (tmp_path / "y.gguf").mkdir()
    assert "is not a regular file" in refused(tmp_path / "y.gguf")
    assert "is no .gguf file" in refused(tmp_path)


@needs_llama
def test_a_file_of_any_name_may_be_one(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Ollama names its files by their hashes."""
    (tmp_path / "sha256-0123").write_bytes(files[0].read_bytes())
    assert loaded(tmp_path / "sha256-0123", tmp_path / "sha256-0123").info.strategy("draft").available


@needs_llama
def test_a_gpu_that_llama_cpp_was_not_built_for_is_told(files: tuple[Path, Path]) -> None:
    if library.llama().llama_supports_gpu_offload():
        pytest.skip("llama.cpp is built with a GPU here")
    for source in (
        ModelSource(path=str(files[0]), gguf=GgufOptions(gpu_layers=4)),
        ModelSource(path=str(files[0]), device="cuda"),
    ):
        with pytest.raises(EngineError, match="built here without a GPU"):
            load(PairSpec("x", "X", source, None, "gguf"), lambda _: None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "x.gguf") == f"{tmp_path / 'x.gguf'} is missing. Give the .gguf file of the model."


def test_without_the_package_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "llama_cpp":
            raise ImportError(name)
        return real(name, *rest)

    library.llama.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    reason = refused(gguf(tmp_path / "x.gguf"))
    assert re.search(f"(not installed|is missing): {re.escape(install_command(PACKAGE))}[.]", reason)
    library.llama.cache_clear()


@needs_llama
def test_llama_cpp_says_nothing_on_its_own(files: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Loading] = []
    load(pair(*files), seen.append)
    assert capfd.readouterr() == ("", "")
    assert [s.what for s in seen if s.what.startswith("reading")]
    assert seen[-1].what == "measuring plain speed"
