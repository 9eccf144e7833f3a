"""`specchat models` with GGUF files: of a repository, of a folder, in parts, of other programs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specchat.cli.exit_codes import ExitCode
from specchat.cli.prepare import prepare
from specchat.cli.wishes import Wishes
from specchat.config.catalog import load_catalog, table_of
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource
from specchat.models.check import checked_pair
from specchat.models.machine import FreeMemory
from tests.cli.conftest import Run, own
from tests.engine.tiny import checkpoint
from tests.hub.server import LoopbackHub
from tests.models.made import gguf, ollama

pytestmark = pytest.mark.usefixtures("hub")


def ggufs(*names: str, folder: Path, **options: Any) -> dict[str, bytes]:
    """GGUF files of these names, those after the first with one tensor of their own name."""
    tensors = [None, *({f"{name}.weight": ((64, 64), 8)} for name in names[1:])]
    return {
        name: gguf(folder / name, own, general__name=name, **options).read_bytes()
        for name, own in zip(names, tensors, strict=True)
    }


QUANTS = ("m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-m.gguf")


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["someone/files"], "m-Q4_K_M.gguf"),
        (["someone/files", "--file", "m-Q8_0.gguf"], "m-Q8_0.gguf"),
        (["someone/files/m-Q8_0.gguf"], "m-Q8_0.gguf"),
    ],
)
def test_a_gguf_file_of_a_repository_is_added_and_pulled(
    run: Run, hub: LoopbackHub, home: Path, tmp_path: Path, arguments: list[str], file: str
) -> None:
    hub.repos["someone/files"] = ggufs(*QUANTS, folder=tmp_path / "files")
    result = run("models", "add", *arguments, "--draft", "someone/files/m-Q8_0.gguf")
    assert result.exit_code == 0, result.stderr
    assert not hub.sent.keys() & set(QUANTS)
    id_ = file.removesuffix(".gguf").lower()
    pair = load_catalog(own(home)).find(id_)
    assert (pair.spec.backend, pair.spec.target.repo, pair.spec.target.file) == ("native", "someone/files", file)
    assert pair.spec.draft is not None
    assert pair.spec.draft.file == "m-Q8_0.gguf"
    assert pair.licence == "apache-2.0"
    assert f"specchat models pull {id_} downloads it." in result.stdout
    assert run("models", "pull", id_, "--yes").exit_code == 0
    assert {file, "m-Q8_0.gguf", "mmproj-m.gguf"} == hub.sent.keys() & set(QUANTS)


def test_what_is_here_of_a_repository_is_added_without_the_hub(
    run: Run, hub: LoopbackHub, home: Path, tmp_path: Path
) -> None:
    hub.repos["someone/files"] = ggufs(*QUANTS, folder=tmp_path / "files")
    assert run("models", "pull", "someone/files", "--file", "m-Q8_0.gguf", "--yes").exit_code == 0
    hub.status = 500
    result = run("models", "add", "someone/files")
    assert result.exit_code == 0, result.stderr
    assert load_catalog(own(home)).find("m-q8_0").spec.target.file == "m-Q8_0.gguf"
    assert "downloads it" not in result.stdout
    by_id = {model["id"]: model for model in json.loads(run("models", "list", "--json").stdout)["models"]}
    assert by_id["m-q8_0"]["missing"] == []


@pytest.mark.parametrize(
    ("names", "arguments", "words"),
    [
        (("a.gguf", "b.gguf"), [], "has 2 GGUF files, for instance a.gguf. Say which with --file."),
        (("a.gguf",), ["--file", "c.gguf"], "has no c.gguf, or not all parts of it."),
        (("a-00001-of-00002.gguf",), ["--file", "a-00001-of-00002.gguf"], "or not all parts of it."),
        (("a.gguf",), ["--file", "a.bin"], "a.bin is no GGUF file"),
        (("in/a.gguf",), ["--file", "in/a.gguf"], "specchat models pull someone/files --file in/a.gguf"),
    ],
)
def test_a_gguf_file_that_cannot_be_told_is_not_added(
    run: Run, hub: LoopbackHub, home: Path, tmp_path: Path, names: Sequence[str], arguments: list[str], words: str
) -> None:
    hub.repos["someone/files"] = ggufs(*names, folder=tmp_path / "files")
    result = run("models", "add", "someone/files", *arguments)
    assert result.exit_code == ExitCode.UNUSABLE
    assert words in " ".join(result.stderr.split())
    assert not own(home).exists()


@pytest.mark.parametrize("named", ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", ""])
def test_a_split_file_is_added_by_its_first_part(run: Run, home: Path, tmp_path: Path, named: str) -> None:
    parts = ("a-00001-of-00002.gguf", "a-00002-of-00002.gguf")
    ggufs(*parts, folder=tmp_path / "split")
    result = run("models", "add", str(tmp_path / "split" / named))
    assert result.exit_code == 0, result.stderr
    spec = load_catalog(own(home)).find("a").spec
    assert (spec.target.path, spec.backend) == (str(tmp_path / "split" / parts[0]), "gguf")
    (tmp_path / "split" / parts[1]).unlink()
    result = run("models", "add", str(tmp_path / "split" / parts[0]))
    assert result.exit_code == ExitCode.UNUSABLE
    assert "1 of 2 parts are missing" in result.stderr


def test_of_a_folder_with_several_gguf_files_one_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    ggufs("b.gguf", "a.gguf", "mmproj.gguf", folder=tmp_path / "files")
    refused = run("models", "add", str(tmp_path / "files"))
    assert refused.exit_code == ExitCode.UNUSABLE
    assert "has 2 GGUF files: a.gguf, b.gguf. Say which with --file, or give its path." in refused.stderr
    refused = run("models", "add", str(tmp_path / "files" / "a.gguf"), "--file", "b.gguf")
    assert "is a file already: leave --file out." in refused.stderr
    result = run(
        "models", "add", str(tmp_path / "files"), "--file", "b.gguf", "--draft", str(tmp_path / "files/a.gguf")
    )
    assert result.exit_code == 0, result.stderr
    assert load_catalog(own(home)).find("b").spec.target.path == str(tmp_path / "files" / "b.gguf")


def test_ollamas_models_are_added_by_their_names(run: Run, home: Path, tmp_path: Path) -> None:
    ollama(tmp_path / "user" / ".ollama" / "models", "tiny:1b", gguf(tmp_path / "m.gguf"))
    result = run("models", "add", "tiny:1b")
    assert result.exit_code == 0, result.stderr
    pair = load_catalog(own(home)).find("tiny-1b")
    assert (pair.spec.backend, pair.name) == ("gguf", "tiny:1b")
    by_id = {model["id"]: model for model in json.loads(run("models", "list", "--json").stdout)["models"]}
    assert (by_id["tiny-1b"]["format"], by_id["tiny-1b"]["declared"]) == ("GGUF", True)


def test_a_checkpoint_drafts_for_a_gguf_file_where_our_decoder_runs_it(run: Run, home: Path, tmp_path: Path) -> None:
    file, folder = gguf(tmp_path / "m.gguf"), checkpoint(tmp_path / "small", num_hidden_layers=1)
    assert run("models", "add", str(file), "--draft", str(folder)).exit_code == 0
    draft = load_catalog(own(home)).find("m").spec.draft
    assert draft is not None
    assert draft.path == str(folder)
    (folder / "config.json").write_text('{"model_type": "gemma3"}')
    refused = run("models", "add", str(file), "--draft", str(folder))
    assert refused.exit_code == ExitCode.UNUSABLE
    assert "m.gguf: It is not run by specchat's own decoder. Take another draft." in refused.stderr


def test_a_gguf_file_that_llama_cpp_runs_drafts_only_for_another_one(run: Run, tmp_path: Path) -> None:
    file = gguf(tmp_path / "m.gguf", general__architecture="other")
    folder = checkpoint(tmp_path / "folder")
    result = run("models", "add", str(folder), "--draft", str(file))
    assert "folder: It is not run by specchat's own decoder. Take another draft." in result.stderr


def test_a_gguf_pair_has_a_backend_of_its_own_and_other_tokens_are_told(tmp_path: Path) -> None:
    file, same = gguf(tmp_path / "m.gguf"), gguf(tmp_path / "same.gguf")
    other = gguf(tmp_path / "other.gguf", tokens=("x", "y"))
    hub, target = Hub("http://127.0.0.1:1", tmp_path), ModelSource(path=str(file))
    pair, cost = checked_pair(hub, target, ModelSource(path=str(same)), "m", FreeMemory(None, None))
    table = table_of(pair, "m")
    assert (table["backend"], table["licence"], table["target"]) == ("gguf", "mit", {"path": str(file)})
    assert cost == ""
    _, cost = checked_pair(hub, target, ModelSource(path=str(other)), "m", FreeMemory(None, None))
    assert cost == "its tokens are others, so that fewer of its drafts are kept"


def test_a_folder_with_one_gguf_file_may_be_the_target(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "someone" / "Tiny-GGUF"
    file = gguf(folder / "tiny.gguf")
    gguf(folder / "mmproj-tiny.gguf")
    gguf(folder / "mtp-tiny.gguf")
    pair = prepare(Wishes(target=folder)).pair
    assert (pair.spec.target.path, pair.spec.backend) == (str(file), "native")
    gguf(folder / "tiny-2.gguf")
    refused = run("ask", "--target", str(folder), "hi")
    assert refused.exit_code == ExitCode.USAGE
    assert "has 2 GGUF files: tiny-2.gguf, tiny.gguf. Give the path of one." in refused.stderr
