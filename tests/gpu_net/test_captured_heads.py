"""Trained heads in captured graphs on a GPU that stands for one, where each graph runs late and on its own."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import torch
from torch.nn.functional import linear

from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.weights import load
from specchat.engine.drafters import eagle as eagle_drafters
from specchat.engine.drafters import medusa as medusa_drafter
from specchat.engine.heads import eagle3 as eagle3_module
from specchat.engine.heads import target as target_module
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.model.rows import Linear
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.strategies import HEADED, STRATEGIES
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.device.test_decoding import SAMPLINGS
from tests.device.test_heads import FIRST, LAYERS, WRITE, shape, steps
from tests.engine.published_heads import HIDDEN, glm_mtp, qwen_mtp
from tests.engine.tiny import VOCAB, checkpoint
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.runtime import Graph

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

GPU = torch.device("cuda", 1)
CAPTURED = set(FIRST) - {"eagle2"}
"""Strategies that are tried each time; EAGLE-2's passes are launched as EAGLE-3's."""
CEILINGS = {"medusa": 28, "eagle2": 77, "eagle3": 86, "mtp": 88, "kv-mtp": 117, "dflash": 198}
MOST_WITH_EXPERTS = 127
"""Most launches of the first pass, where each norm counts as the six operations that it is made of here."""
VIEWS = (
    "prim",
    "select",
    "slice",
    "unbind",
    "view",
    "t",
    "transpose",
    "unsqueeze",
    "expand",
    "split",
    "permute",
    "empty",
)
"""Operations that launch nothing."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that heads go with."""
    root = tmp_path_factory.mktemp("headed")
    return checkpoint(root / "target", **SHAPE | {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS})


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=() if name in CAPTURED else pytest.mark.slow) for name in HEADED]
)
def test_drafts_are_those_of_plain_launches(
    strategy: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no token's scores go to the host."""
    for module in (eagle3_module, target_module):
        monkeypatch.setattr(module, "draft_vocabulary", lambda held, rows, _: torch.arange(rows, device=held.device))
    for module in (medusa_drafter, eagle_drafters):
        monkeypatch.setattr(module, "LEAST", 0.0)
    of = STRATEGIES[strategy].head
    assert of is not None
    check_captured(strategy, target, WRITE[of.name](tmp_path / of.name), CEILINGS.get(strategy, 300))


@pytest.mark.parametrize(
    "write", [glm_mtp, pytest.param(partial(qwen_mtp, family="qwen3_5_moe"), marks=pytest.mark.slow)]
)
def test_a_layer_with_experts_is_captured_too(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """The kernels choose and sum them; the last row alone of the first pass goes through some."""
    folder = write(tmp_path / "own")
    check_captured("mtp", folder, folder, MOST_WITH_EXPERTS)


def check_captured(strategy: str, target: Path, head: Path, ceiling: int) -> None:
    of = STRATEGIES[strategy].head
    assert of is not None
    found = FoundHeads({of.name: HeadFiles.open(head)})
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
        first = cast(Graph, lazily.executor.graphs._graphs[strategy, 0][0])
        launches = Counter({name: n for name, n in first.operations.items() if not is_view(name)})
        assert len(first.launches) + launches.total() <= ceiling, launches


def is_view(operation: str) -> bool:
    return operation.strip("_").removeprefix("unsafe_").removeprefix("new_").removesuffix("_like") in VIEWS


def test_products_are_those_of_bfloat16_with_sums_of_float32() -> None:
    """By one operation after that which rounds the inputs, and one for a bias."""
    g = torch.Generator().manual_seed(1)
    x, weight, bias = torch.randn(3, 20, generator=g), torch.randn(5, 20, generator=g), torch.randn(5, generator=g)
    expected = linear(x.bfloat16().double(), weight.bfloat16().double())
    for more in (None, bias):
        with fake_torch(2, computes=True) as fake:
            product = Linear(weight.to(GPU), None if more is None else more.to(GPU))
            inputs, out = x.to(GPU), torch.zeros(3, 5, device=GPU)
            graphs = Graphs(GPU, [])
            graphs.run("product", lambda product=product, inputs=inputs, out=out: out.copy_(product(inputs)))
            made = out.cpu()
            (graph,) = fake.runtime.captures
        assert graph.operations == {"_to_copy": 1, "mm": 1, "copy_": 1} | ({} if more is None else {"add": 1})
        torch.testing.assert_close(made.double(), expected if more is None else expected + more.double())
