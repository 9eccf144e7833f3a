"""`specchat convert --to safetensors`: pickled heads become files that are read, and nothing in them is run."""

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from specchat.cli.exit_codes import ExitCode
from specchat.engine.heads.files import HeadFiles
from tests.cli.conftest import Run

TENSORS = {"fc.weight": torch.arange(6.0).view(2, 3), "d2t": torch.arange(4), "t2d": torch.ones(3, dtype=torch.bool)}


def heads(folder: Path, held: object = TENSORS, name: str = "pytorch_model.bin") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"a": 1}')
    torch.save(held, folder / name)
    return folder / name


@pytest.mark.parametrize(
    ("name", "made"),
    [("pytorch_model.bin", "model.safetensors"), ("medusa_lm_head.pt", "medusa_lm_head.safetensors")],
)
@pytest.mark.parametrize("by", ["folder", "file"])
def test_tensors_are_written_beside_and_read_as_heads(run: Run, tmp_path: Path, name: str, made: str, by: str) -> None:
    file = heads(tmp_path / "h", OrderedDict(TENSORS), name)
    torch.save({"lr": 0.1}, file.parent / "training_args.pt")
    result = run("convert", str(file if by == "file" else file.parent), "--to", "safetensors")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{file.parent / made}\n"
    written = load_file(file.parent / made)
    assert all(torch.equal(written[key], tensor) for key, tensor in TENSORS.items())
    assert written.keys() == TENSORS.keys()
    opened = HeadFiles.open(file.parent)
    assert (opened.settings, opened.shards) == ({"a": 1}, (file.parent / made,))


def test_another_folder_gets_the_settings_too(run: Run, tmp_path: Path) -> None:
    file, out = heads(tmp_path / "h"), tmp_path / "a" / "b"
    assert run("convert", str(file), "--to", "safetensors", "--out", str(out)).exit_code == 0
    assert HeadFiles.open(out).settings == {"a": 1}
    assert sorted(p.name for p in file.parent.iterdir()) == ["config.json", "pytorch_model.bin"]


def test_tensors_that_share_what_they_store_are_written_apart(run: Run, tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    file = heads(tmp_path / "h", {"0": nn.Parameter(whole), "1": whole.T})
    assert run("convert", str(file), "--to", "safetensors").exit_code == 0
    written = load_file(file.parent / "model.safetensors")
    assert torch.equal(written["0"], whole)
    assert torch.equal(written["1"], whole.T)


class Ran:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_what_would_run_code_is_refused_and_does_not_run(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for write in (torch.save, lambda held, file: file.write_bytes(pickle.dumps(held))):
        file = heads(tmp_path / "h")
        write({"fc.weight": Ran(mark)}, file)
        result = run("convert", str(file), "--to", "safetensors")
        assert result.exit_code == ExitCode.UNUSABLE
        assert "holds more than tensors, which could run code, or is damaged" in " ".join(result.stderr.split())
        assert not mark.exists()
        assert sorted(p.name for p in file.parent.iterdir()) == ["config.json", "pytorch_model.bin"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:200])


def two(file: Path) -> None:
    file.with_name("b.pt").touch()
    file.rename(file.with_name("a.pt"))


def other(held: object) -> Callable[[Path], None]:
    return lambda file: torch.save(held, file)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (cut, "or is damaged"),
    "empty": (lambda file: file.write_bytes(b""), "or is damaged"),
    "garbage": (lambda file: file.write_bytes(bytes(range(256))), "or is damaged"),
    "a module": (other(nn.Linear(2, 2)), "holds more than tensors"),
    "a list": (other([torch.ones(2)]), "is not tensors by name"),
    "nothing": (other({}), "is not tensors by name"),
    "settings": (other({"w": torch.ones(2), "lr": 0.1}), "is not tensors by name"),
    "numbers": (other({1: torch.ones(2)}), "is not tensors by name"),
    "half a surrogate pair": (other({"\ud800": torch.ones(2)}), "is not tensors by name"),
    "sparse": (other({"w": torch.ones(2, 2).to_sparse()}), "is not tensors by name"),
    "complex": (other({"w": torch.ones(2, dtype=torch.complex64)}), "is not tensors by name"),
    "meta": (other({"w": torch.ones(2, device="meta")}), "is not tensors by name"),
    "endless": (other({"w": torch.ones(1).expand(10**13)}), "asks for more than it holds"),
    "two": (two, "holds 2 pickled files, for instance a.pt"),
    "none": (lambda file: file.unlink(), "holds no pickled weights"),
    "no settings": (lambda file: (file.parent / "config.json").unlink(), "config.json is missing"),
    "there": (lambda file: (file.parent / "model.safetensors").touch(), "is there already"),
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_refused_in_words(run: Run, tmp_path: Path, case: str) -> None:
    spoil, words = BAD[case]
    file = heads(tmp_path / "h")
    spoil(file)
    before = sorted(p.name for p in file.parent.iterdir())
    result = run("convert", str(file.parent), "--to", "safetensors")
    assert result.exit_code == ExitCode.UNUSABLE
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert sorted(p.name for p in file.parent.iterdir()) == before


def test_a_place_that_is_not_there_or_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    result = run("convert", str(tmp_path / "nowhere.pt"), "--to", "safetensors")
    assert (result.exit_code, "is not there" in result.stderr) == (ExitCode.UNUSABLE, True)
    (tmp_path / "a file").touch()
    result = run("convert", str(heads(tmp_path / "h")), "--to", "safetensors", "--out", str(tmp_path / "a file"))
    assert (result.exit_code, "cannot be written to" in result.stderr) == (ExitCode.USAGE, True)


def test_a_disk_that_is_full_leaves_nothing_behind(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_tensors: object, file: Path) -> None:
        from safetensors import SafetensorError

        file.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("specchat.engine.weights.unpickled.save_file", full)
    file = heads(tmp_path / "h")
    result = run("convert", str(file), "--to", "safetensors")
    assert result.exit_code == ExitCode.USAGE
    assert "No space left on device" in result.stderr
    assert sorted(p.name for p in file.parent.iterdir()) == ["config.json", "pytorch_model.bin"]


def test_pickled_heads_are_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    file = heads(tmp_path / "h")
    with pytest.raises(Exception, match=f'specchat convert "{file.parent}" --to safetensors'):
        HeadFiles.open(file.parent)
