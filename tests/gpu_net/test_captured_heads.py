"""Trained heads in captured graphs on a GPU that stands for one, where each graph runs late and on its own."""

from pathlib import Path

import pytest
import torch

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.weights import load
from specchat.engine.drafters import eagle as eagle_drafters
from specchat.engine.drafters import medusa as medusa_drafter
from specchat.engine.heads import eagle3 as eagle3_module
from specchat.engine.heads import target as target_module
from specchat.engine.heads.families import FoundHeads
from specchat.engine.heads.files import HeadFiles
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import HEADED, STRATEGIES
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.device.test_decoding import SAMPLINGS
from tests.device.test_heads import FIRST, LAYERS, WRITE, shape, steps
from tests.engine.published_heads import HIDDEN
from tests.engine.tiny import VOCAB, checkpoint
from tests.gpu_net.fake_torch import fake_torch

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

GPU = torch.device("cuda", 1)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that heads go with."""
    root = tmp_path_factory.mktemp("headed")
    return checkpoint(root / "target", **SHAPE | {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS})


@pytest.mark.parametrize(
    "strategy", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in HEADED]
)
def test_drafts_are_those_of_plain_launches(
    strategy: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no token's scores go to the host."""
    for module in (eagle3_module, target_module):
        monkeypatch.setattr(module, "proposed", lambda weights, rows, _: torch.arange(rows, device=weights.device))
    for module in (medusa_drafter, eagle_drafters):
        monkeypatch.setattr(module, "LEAST", 0.0)
    of = STRATEGIES[strategy].head
    assert of is not None
    found = FoundHeads({of.name: HeadFiles.open(WRITE[of.name](tmp_path / of.name))})
    drafting, sampling = [(strategy, 4)] * 2, SAMPLINGS["sampled"]

    def runner(captured: bool = True) -> Runner:
        opened = Checkpoint.open(target)
        weights = load(opened, None, GPU, torch.float32)
        model = DeviceDecoder(opened.config, weights, CONTEXT, GPU, torch.float32)
        return device_runner(model, None, VOCAB, GPU, captured, found=found)

    with fake_torch(2, computes=True):
        launched = shape(steps(runner(captured=False), drafting, sampling))
    with fake_torch(2, computes=True) as fake:
        lazily = runner()
        fake.to_host.clear()
        assert shape(steps(lazily, drafting, sampling)) == launched
        assert not fake.runtime.problems
        assert max(fake.to_host) < 4 * VOCAB
        assert isinstance(lazily.executor, DeviceExecutor)
        assert {(strategy, 0), (strategy, 1)} <= lazily.executor.graphs._graphs.keys()
