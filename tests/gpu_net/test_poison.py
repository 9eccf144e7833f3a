"""Poison reaches every buffer, and each kind of stale dependency shows; `test_steps.py` has the sound ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.device import drafting as steps
from specchat.engine.device import ops
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.launches import Launches
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner
from tests.device.conftest import DEVICE, SHAPE, decoder
from tests.engine.tiny import VOCAB, checkpoint, perturbed
from tests.gpu_net.poison import buffers, poisoned
from tests.gpu_net.sanitiser import sanitised

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")

PROMPT = [72, 101, 108, 108]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setattr(LengthPolicy, "ends", lambda *_: False)
    target = checkpoint(tmp_path / "target", **SHAPE | {"num_hidden_layers": 1})
    return device_runner(decoder(target), decoder(perturbed(tmp_path / "draft", target, 0.05)), VOCAB, DEVICE)


def write(runner: Runner) -> list[object]:
    """What two steps draft and add, with the sanitiser in the place of a crash."""
    drafter = runner.drafters["draft"]
    drafter.forget()
    runner.target.keep(0)
    runner.target.begin(PROMPT)
    drafter.begin(PROMPT)
    with sanitised():
        reply = runner.reply(Sampling(seed=7, temperature=0.9), list(PROMPT), ())
        made = [reply.step(drafter, 2, "coupled") for _ in range(2)]
        reply.close()
    return [(step.tokens, step.drafts, step.confidence) for step in made]


def left_out(*_: object) -> None:
    pass


def one_too_many(attend: Callable[..., None]) -> Callable[..., None]:
    """Attention that also sees the position after a row's own."""

    def further(query: Tensor, entries: KvEntries, at: RowPlaces, *rest: Any) -> None:
        attend(query, entries, at._replace(length=at.length + 1), *rest)

    return further


def not_activated(multiply: Callable[..., None]) -> Callable[..., None]:
    """Products, but those of gates."""

    def some(*arguments: Any) -> None:
        if arguments[-1] is None or len(arguments) < 5:
            multiply(*arguments)

    return some


STALE: dict[str, tuple[Any, str, Any]] = {
    "activations": (Launches, "multiply", not_activated(Launches.multiply)),
    "partial sums": (ops, "rope_and_write", left_out),
    "later positions of the cache": (ops, "attend_rows", one_too_many(ops.attend_rows)),
    "scores of a draft": (steps, "process", left_out),
    "what is chosen": (steps, "choose", left_out),
}
"""Parts of a step that are changed so that it depends on what an earlier one left."""


@pytest.mark.rotated(3)
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:All-NaN slice")
@pytest.mark.parametrize("name", STALE)
def test_a_stale_dependency_is_found(runner: Runner, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*STALE[name])
    before = write(runner)
    with poisoned():
        assert write(runner) != before


def test_without_one_nothing_changes(runner: Runner) -> None:
    before = write(runner)
    with poisoned() as counts:
        assert write(runner) == before
    assert min(counts[kind] for kind in ("passes", "drafts", "writes")) >= 2


def test_buffers_are_found_wherever_they_are_held(runner: Runner) -> None:
    executor = runner.executor
    assert isinstance(executor, DeviceExecutor)
    executor.new = {"a": [torch.zeros(2)]}  # type: ignore[attr-defined]
    found = {path for path, _ in buffers(executor)}
    assert found >= {
        "new",
        "drafts._values.values",
        "drafts._input.token",
        "_drawn.scores",
        "_state.sure",
        "_verifier._on_host",
        "_verifier._scored.candidates",
        "drafts.trees._chosen",
        "drafts.trees.growth.tops.score",
        "drafts.trees.growth.step.fed",
    }
    assert not any("weight" in path or "keys" in path for path in found)
