"""`specchat engine` tells what read texts take, and removes them."""

from typing import Any

import pytest

from specchat.cli.engine import _lines
from specchat.config.paths import user_paths
from specchat.engine.prefixes.on_disk import SUFFIX
from tests.cli.conftest import Run

WORKER: dict[str, Any] = {"pair": "Demo", "device": "cpu", "state": "loaded", "clients": []}


def test_the_status_tells_what_read_texts_take() -> None:
    answer = {"version": "1", "pid": 1, "linger_s": 300, "workers": [WORKER]}
    assert "read texts" not in _lines(answer)[1]
    (_, line) = _lines(answer | {"workers": [WORKER | {"read_bytes": 3 << 29}]})
    assert line.endswith(", holds 1,536 MiB of read texts")
    (_, line) = _lines(answer | {"workers": [WORKER | {"replies_a_pass": 2.75}]})
    assert line.endswith(", 2.8 replies in a pass of its last one")


def test_the_status_tells_where_a_draft_is_that_has_a_gpu_of_its_own() -> None:
    card = "NVIDIA GeForce RTX 3090 Ti"
    device = f"{card}, the draft on a second GPU ({card})"
    answer = {"version": "1", "pid": 1, "linger_s": 300, "workers": [WORKER | {"device": device}]}
    assert f"Demo on {device}: loaded" in _lines(answer)[1]


@pytest.mark.usefixtures("home")
def test_forget_removes_the_files_alone(run: Run) -> None:
    folder = user_paths().read
    folder.mkdir(parents=True)
    (folder / f"a{SUFFIX}").write_bytes(b"x" * (2 << 20))
    (folder / "mine").write_text("x")
    assert f"Read texts on disk: 2 MiB in {folder}\n" in run("engine", "status").output
    result = run("engine", "forget")
    assert (result.exit_code, result.output) == (0, "Removed 1 file (2 MiB).\n")
    assert [path.name for path in folder.iterdir()] == ["mine"]
    (folder / "mine").unlink()
    assert run("engine", "status").output == "No engine is running.\n"
    assert run("engine", "forget").output == "Removed 0 files (0 MiB).\n"


@pytest.mark.parametrize("name", ["SPECCHAT_KEEP_READ", "SPECCHAT_KEEP_READ_ON_DISK"])
def test_a_size_that_is_none_is_refused(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "much")
    result = run("ask", "hi")
    assert result.exit_code == 2
    assert f'{name} should be a size like "2 GiB"' in result.output
