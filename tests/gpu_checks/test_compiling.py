"""What is told of a compiled kernel, by stand-ins for the CUDA tools."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from specchat.engine.gpu_checks import compiling
from specchat.engine.gpu_checks.notes import Notes

USAGE = "echo ' REG:40 STACK:16 SHARED:0'"
SPILLS = "echo '16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads' >&2"


def reported(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Notes:
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(compiling, "BIN", folder)
    monkeypatch.setattr(compiling, "get_ptxas", lambda _: SimpleNamespace(path=str(folder / "ptxas")))
    notes = Notes()
    files = {ending: folder / f"kernel{ending}" for ending in (".cubin", ".ptx")}
    compiling.report(notes, {"name": "norm", "shared": 0, "num_warps": 4}, files, 89)
    return notes


def test_registers_and_spills_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = reported(tmp_path, monkeypatch, cuobjdump=USAGE, ptxas=SPILLS)
    assert notes.wrong == []
    (row,) = notes.rows
    assert (row["registers"], row["stack"], row["spilled"]) == (40, 16, 8)


@pytest.mark.parametrize(
    ("programs", "wrong"),
    [
        ({"cuobjdump": "echo no such file >&2; exit 1"}, "norm: cuobjdump ends with code 1: no such file"),
        ({}, "norm: cuobjdump does not start: "),
        ({"cuobjdump": "echo nothing"}, "norm: how many registers it takes is not told"),
        ({"cuobjdump": USAGE, "ptxas": "exit 255"}, "norm: ptxas ends with code 255: "),
        ({"cuobjdump": USAGE, "ptxas": "echo nothing"}, "norm: what it spills is not told"),
    ],
)
def test_a_tool_that_fails_is_no_success(
    programs: dict[str, str], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reported(tmp_path, monkeypatch, **programs).wrong[0].startswith(wrong)
