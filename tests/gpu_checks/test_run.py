"""The process of one check, in this process, with a GPU made up."""

import faulthandler
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specchat.engine.errors import ModelError
from specchat.engine.gpu_checks import ROWS, UNAVAILABLE, environment, place, run
from specchat.engine.hardware import gpu

FULL = "the GPU has no memory left even to start CUDA (end other programs that use it)"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process sets for itself is as before."""
    monkeypatch.setattr(faulthandler, "enable", lambda: None)
    with torch.enable_grad():
        yield


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that the driver counts and CUDA does not start on."""

    def fails(*_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(place, "on_gpu", lambda: True)
    for module in (gpu, environment):
        monkeypatch.setattr(module, "find_gpu", lambda: FULL)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name in ("set_device", "get_device_properties", "get_device_name"):
        monkeypatch.setattr(torch.cuda, name, fails)


@pytest.mark.usefixtures("full")
def test_why_a_card_does_not_start_is_told(tmp_path: Path) -> None:
    assert run.main("specchat.engine.gpu_checks.environment:look", str(tmp_path), "") == 0
    first, card = [json.loads(line) for line in (tmp_path / ROWS).read_text().splitlines()]
    assert first["none"] == FULL
    assert card == {"index": 0, "error": "CUDA error: out of memory"}


def test_a_missing_package_is_not_the_cards_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs(_: object) -> None:
        raise ModelError("quant needs a package that is not installed")

    monkeypatch.setattr(environment, "look", needs)
    assert run.main("specchat.engine.gpu_checks.environment:look", str(tmp_path), "") == UNAVAILABLE
    assert capsys.readouterr().out == "quant needs a package that is not installed\n"
