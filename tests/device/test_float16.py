"""Checkpoints in float16 on a GPU: products of gates and values may be larger than float16 holds."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.runners.load import COMPUTED
from tests.device.conftest import SHAPE, decoder
from tests.device.test_decoder import ids, run
from tests.device.test_families import changes
from tests.engine.test_decoder import reference
from tests.engine.tiny import checkpoint

LARGE = 2.0**10
"""A factor on gates and values: their products go to some millions, where float16 ends at 65,504."""
FAMILIES = "llama", "qwen2_moe", "qwen3_5"
"""A dense model, experts beside an MLP, and recurrent layers."""


@pytest.fixture(params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A float16 checkpoint whose gates and values are large, and whose last products of MLPs are as much smaller."""
    known = SHAPE | {"num_hidden_layers": 1} if request.param == "llama" else changes(request.param)
    folder = checkpoint(tmp_path / "m", seed=3, **known)
    path = folder / "model.safetensors"

    def scaled(name: str, tensor: torch.Tensor) -> torch.Tensor:
        factor = LARGE if "gate_proj" in name or "up_proj" in name else 1 / LARGE**2 if "down_proj" in name else 1.0
        return (factor * tensor).half().contiguous()

    save_file({name: scaled(name, one) for name, one in load_file(path).items()}, path, metadata={"format": "pt"})
    written = folder / "config.json"
    written.write_text(json.dumps(json.loads(written.read_text()) | {"dtype": "float16"}))
    return folder


def test_products_of_gates_beyond_float16_stay_numbers(folder: Path) -> None:
    tokens = ids(5)
    mine, theirs = run(decoder(folder, COMPUTED), tokens, 0), reference(folder, tokens)
    # bfloat16 has eight bits of a number.
    assert (mine - theirs).norm() < 0.05 * theirs.norm()


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_in_float16_they_would_not(folder: Path) -> None:
    assert not run(decoder(folder, torch.float16), ids(5), 0).isfinite().all()
