"""`specchat tune` where the target runs by the kernels of the GPU: interpreted here, in main memory."""

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import pytest
import torch

from specchat.cli.exit_codes import ExitCode
from specchat.engine import loading
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import load as weights
from specchat.engine.fetch.hub import locate
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.device import device_runner
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import gain, replies
from specchat.tune.target import DeviceTarget
from specchat.tune.training import Training
from tests.cli.conftest import Rising, Run, Tiny
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.engine.tiny import checkpoint, perturbed

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

HERE = torch.device("cpu")


@pytest.fixture(autouse=True)
def pair(tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Path:
    target = checkpoint(tmp_path / "target", **SHAPE | {"num_hidden_layers": 4})
    measured = gain.load
    monkeypatch.setattr(loading, "load", interpreted)
    monkeypatch.setattr(gain, "load", measured)
    pair = tiny(target, perturbed(tmp_path / "draft", target, 0.05))
    # An interpreted step takes as long as a hundred others.
    monkeypatch.setattr(replies, "LONGEST_REPLY", 7)
    monkeypatch.setattr(gain, "TOKENS", 6)
    return pair


def interpreted(spec: PairSpec, progress: Callable[[Loading], None]) -> Session:
    """The pair as the GPU's decoder loads it, but for its speed, which a tune does not ask for."""
    begun, opened = perf_counter(), [Checkpoint.open(locate(one, progress)) for one in spec.sources]
    target, draft = (
        DeviceDecoder(one.config, weights(one, None, HERE, torch.float32), CONTEXT, HERE, torch.float32)
        for one in opened
    )
    runner = device_runner(target, draft, target.config.vocab, HERE)
    with patch.object(Session, "_measure"):
        return Session(spec, opened[0].tokenizer(), runner, begun)


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize(
    "command", [("draft", "--steps", "4"), ("heads", "--family", "eagle3", "--steps", "3"), ("swift", "--sets", "5")]
)
def test_a_target_on_the_gpu_is_learnt_from(
    command: tuple[str, ...],
    run: Run,
    words_file: str,
    rising: Rising,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its states as the kernels leave them, to what is registered."""
    made: list[DeviceTarget] = []
    begin = DeviceTarget.__init__
    monkeypatch.setattr(DeviceTarget, "__init__", lambda self, *given: (made.append(self), begin(self, *given))[1])
    rising(1.3, 1.1)
    kind, *options = command
    result = run("tune", kind, "tiny", "--prompts", words_file, "--replies", "3", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert made, "the decoder of the GPU was not used"
    rows = json.loads(run("tune", "list", "--json").stdout)
    assert [row["pair"] for row in rows] == ["tiny"] or "Skipping layers would not beat" in result.stdout


@pytest.mark.parametrize(
    "command",
    [("draft", "--steps", "3"), pytest.param(("heads", "--family", "medusa", "--steps", "1"), marks=pytest.mark.slow)],
)
def test_its_layers_make_way_for_the_training(
    command: tuple[str, ...], run: Run, words_file: str, rising: Rising, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoders: list[weakref.ref[object]] = []
    there: list[int] = []
    begin, train = DeviceDecoder.__init__, Training._train
    monkeypatch.setattr(
        DeviceDecoder, "__init__", lambda self, *given: (decoders.append(weakref.ref(self)), begin(self, *given))[1]
    )
    monkeypatch.setattr(
        Training,
        "_train",
        lambda self, *given: (there.append(sum(one() is not None for one in decoders)), train(self, *given))[1],
    )
    rising(1.3, 1.1)
    kind, *options = command
    assert run("tune", kind, "tiny", "--prompts", words_file, "--replies", "2", *options).exit_code == 0
    assert decoders
    assert there
    assert not any(there)


def test_an_exit_is_not_trained_for_a_gpu(run: Run, words_file: str) -> None:
    result = run("tune", "exit", "tiny", "--prompts", words_file, "--replies", "4", "--steps", "2")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "on a GPU a pass runs from the first layer on, and this needs specchat's own decoder on the CPU." in (
        result.stderr
    )
