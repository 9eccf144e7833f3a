"""A format is one file: the example of docs/weight-formats.md is read, run and planned, and plans need no torch."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine import formats
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import plan
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.packed import Parts, packed, rounded

pytestmark = pytest.mark.cpu

PAGE = Path(__file__).parents[2] / "docs" / "weight-formats.md"
SHAPE = {"hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2, "head_dim": 64}


def pack(name: str, matrix: Tensor) -> tuple[Parts, Tensor]:
    nibbles, scales, truth = rounded(matrix, 32, torch.float16)
    octets = nibbles.to(torch.uint8)
    return {f"{name}.nibbles": octets[:, 0::2] | octets[:, 1::2] << 4, f"{name}.scales": scales}, truth


def test_the_example_of_the_page_is_read_run_and_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, truth = packed(tmp_path, pack, {"quant_method": "example"}, **SHAPE)
    example: dict[str, Any] = {"__name__": __name__}
    exec(PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], example)
    known = (*formats.known(), *example["FORMATS"])
    for user in ("formats", "weights.weights"):
        monkeypatch.setattr(f"specchat.engine.{user}.known", lambda: known)
    opened, text = Checkpoint.open(stored), list(range(3, 40))
    model, expected = host_model(opened, 64), ReferenceDecoder(Checkpoint.open(truth)).forward(text, 0)
    for one in (model, ReferenceDecoder(opened)):
        torch.testing.assert_close(one.forward(text, 0), expected, rtol=2e-4, atol=2e-4)
    need = plan(Model(opened.config, "cpu", opened.quant, opened.format, threads=1), None, 64).need("cpu")
    assert need.weights + need.cache == pytest.approx(model.memory(), rel=0.001)


def test_formats_are_known_without_torch() -> None:
    code = "import sys; from specchat.engine.formats import known; print(len(known()), 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(len(formats.known())), "False"]
