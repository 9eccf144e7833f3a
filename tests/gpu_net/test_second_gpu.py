"""A draft on a GPU of its own, on two GPUs that are not there: every launch on its GPU, and the same text."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.device import beside
from specchat.engine.device.clock import Clock
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.model import DeviceModel
from specchat.engine.hardware import gpu
from specchat.engine.memory.need import Model
from specchat.engine.memory.plan import plan
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners import device as runners
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.load import load_runner
from specchat.engine.runners.runner import Runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, ON_GPU
from tests.device.test_decoding import SAMPLINGS, write
from tests.engine.tiny import VOCAB
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.test_fake_cuda import FIRST, HOST, SECOND, tiny, tiny_decoder

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for GPUs where there are none")
__all__ = ["tiny"]


@pytest.fixture(autouse=True)
def _slow_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify pass lasts as long as there is something to draft."""
    monkeypatch.setattr(Clock, "passed", lambda _: False)
    monkeypatch.setattr(beside, "LIKELY", 0.0)


def apart(folders: tuple[Path, Path], target: torch.device, draft: torch.device) -> Runner:
    return device_runner(tiny_decoder(folders[0], target), tiny_decoder(folders[1], draft), VOCAB, target)


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize(
    ("target", "draft", "name"),
    [(FIRST, SECOND, "sampled"), (SECOND, FIRST, "filtered"), (FIRST, SECOND, "penalised")],
)
def test_a_draft_on_a_gpu_of_its_own_changes_no_text(
    target: torch.device, draft: torch.device, name: str, tiny: tuple[Path, Path]
) -> None:
    """Whichever GPU is the current one; from GPU to GPU goes nothing."""
    sampling = SAMPLINGS[name]
    expected = write(apart(tiny, HOST, HOST), "plain", 0, sampling, tokens=6)
    with fake_torch(2, computes=True) as fake:
        runner = apart(tiny, target, draft)
        for _ in range(2):
            assert write(runner, "draft", 3, sampling, tokens=6)[:6] == expected
            assert write(runner, "plain", 0, sampling, tokens=6) == expected
        assert not fake.runtime.problems
        assert not fake.across
        assert {graph.gpu for graph in fake.runtime.captures} == {0, 1}
        assert all(queue.asked for queue in fake.runtime.queues)


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_draft_chooses_on_its_gpu_what_the_target_would(
    name: str, tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target drafts for itself, so everything is accepted; logits come to the host under penalties alone."""
    run, rows = DeviceModel.logits_there, list[int]()

    def noted(model: DeviceModel, tokens: Sequence[int], *others: Any) -> Tensor:
        rows.append(len(tokens))
        return run(model, tokens, *others)

    monkeypatch.setattr(DeviceModel, "logits_there", noted)
    with fake_torch(2, computes=True) as fake:
        runner = apart((tiny[0], tiny[0]), FIRST, SECOND)
        write(runner, "draft", 3, SAMPLINGS[name], tokens=8, refused=False)
        copied = len(fake.to_host)
        write(runner, "draft", 3, SAMPLINGS[name], tokens=8, refused=False)
        logits = [one for one in fake.to_host[copied:] if one >= 4 * VOCAB]
        assert bool(logits) == (name == "penalised")
        assert 1 <= max(rows) <= 2, "what the cache holds was read again"
        assert not fake.runtime.problems


def test_replies_with_log_probabilities_wait_for_the_gpu_that_they_read(tiny: tuple[Path, Path]) -> None:
    prompt = [5, 6, 7, 5, 6]

    def text(runner: Runner, strategy: str) -> list[int]:
        runner.target.keep(0)
        runner.target.begin(list(prompt))
        runner.drafters[strategy].begin(list(prompt))
        reply = runner.reply(SAMPLINGS["sampled"], list(prompt), (), top=2)
        while len(reply.committed) < len(prompt) + 6:
            reply.step(runner.drafters[strategy], 3, "coupled")
        reply.close()
        return reply.committed[len(prompt) :][:6]

    expected = text(apart(tiny, HOST, HOST), "plain")
    with fake_torch(2, computes=True) as fake:
        assert text(apart(tiny, FIRST, SECOND), "draft") == expected
        assert text(apart(tiny, SECOND, FIRST), "draft") == expected
        assert not fake.runtime.problems


def test_tokens_are_embedded_on_the_gpu_of_their_model(tiny: tuple[Path, Path]) -> None:
    """Beside passes, whose GPU is the current one; heads ask for that."""

    def embedded(device: torch.device) -> list[Any]:
        graphs = Graphs(device, [])
        model = DeviceModel(tiny_decoder(tiny[0], device), "target", VOCAB, graphs, device)
        return [model.embed([5, 6, 7], normed).tolist() for normed in (True, False)]

    expected = embedded(HOST)
    with fake_torch(2, computes=True) as fake:
        assert embedded(SECOND) == embedded(FIRST) == expected
        assert not fake.runtime.problems


def test_a_pair_is_loaded_to_the_gpus_of_its_plan(tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the runner tells what is where."""
    monkeypatch.setattr(gpu.CHOSEN, "index", 1)
    monkeypatch.setattr(gpu.SECOND, "index", 0)
    target, draft = map(Checkpoint.open, tiny)
    spec = PairSpec("p", "P", *(ModelSource(path=str(folder)) for folder in tiny))
    models = Model(target.config, "cuda"), Model(draft.config, "second-gpu")
    with fake_torch(2, computes=True) as fake:
        monkeypatch.setattr(torch.cuda, "get_device_name", "card {}".format)
        planned = plan(*models, CONTEXT)
        runner = load_runner(spec, target, draft, planned, lambda: None, None)
        assert runner.draft is not None
        devices = (runner.target.model.device, runner.draft.model.device)
        assert devices == (SECOND, FIRST)
        assert runner.device == "card cuda:1, the draft on a second GPU (card cuda:0)"
        assert runner.second_memory > runner.draft.model.memory() > 0
        alone = load_runner(spec, target, None, replace(planned, draft=None), lambda: None, None)
        assert runner.memory() == alone.memory()
        assert not fake.runtime.problems
    reasons = {status.name: status.reason for status in runner.statuses if not status.available}
    assert "a second GPU" in reasons["draft-tree"]
    assert "draft" in runner.drafters


def test_kernels_are_compiled_ahead_for_the_gpu_that_they_run_on(
    tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a draft on its own GPU, by a rehearsal of the passes that it makes there."""
    asked = list[tuple[object, ...]]()

    def noted(run: partial[object], device: torch.device, _: object) -> None:
        asked.append((run.func, run.args[0].device, len([one for one in run.args if one is not None]), device))

    monkeypatch.setattr(runners, "compile_ahead", noted)
    with fake_torch(2, computes=True) as fake:
        apart(tiny, FIRST, SECOND).prepare(lambda _: None)
        assert asked == [(runners.rehearse, FIRST, 2, FIRST), (runners.rehearse_passes, SECOND, 2, SECOND)]
        assert not fake.runtime.problems
