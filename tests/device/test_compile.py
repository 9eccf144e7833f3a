"""All kernels of a pair are found before anything is launched, and compiled where a launch looks for them."""

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from specchat.engine.runners import device
from specchat.engine.runners.device import compile_ahead
from tests.device.conftest import DEVICE, SHAPE
from tests.device.test_families import changes
from tests.device.test_pictures import ONE
from tests.engine.tiny import checkpoint, perturbed
from tests.pictures.whole import saved

CUT = {"num_hidden_layers": 5, "hidden_size": 512, "head_dim": 16, "intermediate_size": 1024}
"""Products that a GPU of many multiprocessors splits, and one of few does not."""
OTHERS = "gemma4_e", "qwen3_5_moe", "gemma4_moe", "gpt_oss", "lfm2", "deepseek_v3"
"""Families that launch what Llama does not."""
MANY = {"qwen3_5_moe": {"num_experts": 80}}
"""More than one program chooses from for the rows of a prompt."""


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `tests.device.ahead` tells of a target with layers to skip, its draft, and other targets."""
    root = tmp_path_factory.mktemp("ahead")
    target = checkpoint(root / "target", **SHAPE | CUT)
    draft = perturbed(root / "draft", target, 0.05)
    others = [checkpoint(root / family, **changes(family) | MANY.get(family, {})) for family in OTHERS]
    others += [saved(kind, root / f"sees-{kind}", **ONE[kind]) for kind in ("gemma4", "qwen3_vl")]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(root / "cache")
    command = [sys.executable, "-m", "tests.device.ahead", *map(str, (target, draft, *others))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_every_kernel_that_there_is_is_found(ahead: dict[str, Any]) -> None:
    assert set(ahead["launched"]) >= {"_multiply", "_choose", "_commit"}
    assert set(ahead["found"]) == set(ahead["launched"])


def test_one_kernel_is_found_in_all_the_forms_that_a_pair_launches(ahead: dict[str, Any]) -> None:
    assert ahead["found"].count("_multiply") > 4
    assert ahead["differ"], "products are cut by the size of the GPU"
    assert ahead["no more"], "a draft on the host launches none of its own"
    assert ahead["heads"], "heads launch none of their own"
    assert ahead["apart"], "all that a draft on a second GPU launches"
    assert ahead["company"] == [True] * len(ahead["company"]), "all that replies in company launch"
    assert ahead["halves"], "all that the layers on two GPUs launch"
    assert ahead["pictures"] == [True, True], "wide pictures and rows after first layers launch none of their own"


def test_a_launch_finds_what_was_compiled(ahead: dict[str, Any]) -> None:
    assert ahead["compiled"] >= 3
    assert ahead["hits"] == [True] * ahead["compiled"]


def test_progress_counts_kernels(ahead: dict[str, Any]) -> None:
    count = ahead["compiled"]
    expected = [f"kernel {i} of {count}, compiled once on this machine" for i in range(1, count + 1)]
    assert ahead["told"] == expected


def test_a_pair_loads_where_nothing_can_be_compiled_ahead(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: object) -> None:
        raise AttributeError("another version of Triton")

    monkeypatch.setattr(device, "rehearsed", refused)
    told: list[str] = []
    with caplog.at_level(logging.WARNING):
        compile_ahead(lambda: None, DEVICE, told.append)
    assert told == ["kernels"]
    assert "one after the other" in caplog.text
