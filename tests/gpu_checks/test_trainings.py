"""The check of trainings on a GPU, dry: main memory stands for it, and the interpreter for its kernels."""

from pathlib import Path

import pytest
import torch

from specchat.engine.gpu_checks import demo as checks
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.tune import gpu_check
from specchat.tune.families import FAMILIES
from specchat.tune.target import DeviceTarget
from tests.gpu_checks.conftest import HOST

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs them itself")


@pytest.fixture
def notes(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setattr(place, "gpu", lambda: HOST)
    monkeypatch.setattr(checks, "CONTEXT", 64)
    monkeypatch.setattr(gpu_check, "TOKENS", 4)
    monkeypatch.setattr(gpu_check, "STEPS", 2)
    monkeypatch.setattr(gpu_check, "ROWS", 2)
    return Notes(tmp_path, demo)


def test_every_training_is_compared(notes: Notes) -> None:
    gpu_check.trainings(notes)
    assert notes.wrong == []
    kinds = ["draft", "adapters", *FAMILIES]
    told = [row for row in notes.rows if "device" in row]
    assert [row["what"] for row in told] == [kind for kind in kinds for _ in range(2)]
    assert all(len(row["losses"]) == 2 and row["step_ms"] > 0 for row in told)
    assert [row["what"] for row in notes.rows if "allowed" in row] == [f"{kind}, losses" for kind in kinds]


def test_a_target_whose_scores_are_off_is_found(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = DeviceTarget.logits
    monkeypatch.setattr(DeviceTarget, "logits", lambda self, states: 1.5 * logits(self, states))
    gpu_check.trainings(notes)
    assert any(words.startswith("draft, losses: off by") for words in notes.wrong)
