"""Every family in captured graphs on a GPU: each way of drafting writes what eager plain launches write."""

from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load
from specchat.engine.gpu_checks.demo import write
from specchat.engine.kernels import gpu_shapes
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import DEVICE
from tests.device.test_families import RUN, changes
from tests.engine.tiny import FAMILY, VOCAB, checkpoint, perturbed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CONTEXT = 384
PROMPT = [(7 * i) % 250 for i in range(150)]
TOKENS = 90
"""The reply goes round the rings of layers with a window."""
SAMPLINGS = Sampling(), Sampling(seed=4, temperature=0.9, top_k=40)


@pytest.fixture(autouse=True)
def _small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_shapes, "BACK", 0)


def loaded(folder: Path, quant: Quant | None, in_main: int = 0) -> DeviceDecoder:
    opened = Checkpoint.open(folder)
    weights = load(opened, quant, DEVICE, torch.bfloat16, None, in_main)
    return DeviceDecoder(opened.config, weights, CONTEXT, DEVICE, torch.bfloat16)


def runner(target: Path, draft: Path, quant: Quant | None, captured: bool, in_main: int = 0) -> Runner:
    return device_runner(loaded(target, quant, in_main), loaded(draft, None), VOCAB, DEVICE, captured)


@pytest.mark.parametrize("quant", [None, "nf4"])
@pytest.mark.parametrize("family", [*FAMILY, *RUN])
def test_every_draft_writes_the_plain_text(family: str, quant: Quant | None, tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", seed=3, **changes(family))
    draft = perturbed(tmp_path / "draft", target, 0.05)
    eager, captured = (runner(target, draft, quant, how) for how in (False, True))
    in_main = runner(target, draft, quant, True, 1) if Checkpoint.open(target).config.recipe.mixtures else None
    for sampling in SAMPLINGS:
        plain = write(eager, "plain", 0, sampling, PROMPT, TOKENS)
        assert len(set(plain)) > 3 or sampling.temperature == 0
        assert write(captured, "plain", 0, sampling, PROMPT, TOKENS) == plain
        for strategy in captured.drafters.keys() - {"plain"}:
            for length in (1, 5):
                assert write(captured, strategy, length, sampling, PROMPT, TOKENS) == plain, (strategy, length)
        if in_main is not None:
            assert write(in_main, "draft", 5, sampling, PROMPT, TOKENS) == plain
