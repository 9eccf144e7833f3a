"""Training on a GPU that stands for one: nothing stays in main memory, and what is learnt is what a CPU learns."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.weights import load
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.device import device_runner
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune import TUNED
from specchat.tune import draft as draft_module
from specchat.tune import learner as learner_module
from specchat.tune.distilling import Distilled, Distilling
from specchat.tune.draft import DraftLearner
from specchat.tune.families import untrained
from specchat.tune.learner import Learner
from specchat.tune.rows import TrainingText
from specchat.tune.runs.draft import put_draft
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import accepted_length
from specchat.tune.training import Training
from specchat.tune.workshop import put_heads
from tests.device.conftest import CONTEXT, ON_GPU, SHAPE
from tests.engine.tiny import FAMILIES, VOCAB, checkpoint
from tests.gpu_net.fake_torch import fake_torch
from tests.tune.card import GPU, card, target_there

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

STEPS = 4


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("draft") / "draft"
    return Checkpoint.open(checkpoint(folder, num_hidden_layers=2, num_key_value_heads=2, attention_bias=True))


def everywhere(learner: Learner) -> set[torch.device]:
    """Where the tensors of a learner are."""
    return {one.device for one in (*learner.parameters(), *learner.buffers())}


def alike(begun: Mapping[str, Tensor], here: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> None:
    """Check that weights moved to the same place on both, but for rounding: Muon's is that of bfloat16."""
    assert here.keys() == there.keys()
    for name, weight in here.items():
        if weight.is_floating_point():
            moved, apart = (weight - begun[name]).norm(), (there[name].cpu() - weight).norm()
            assert apart <= 0.1 * moved, (name, float(apart), float(moved))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("head", TUNED)
def test_heads_learn_the_same(head: Head, target: FrozenTarget, learnt: list[Path], tmp_path: Path) -> None:
    replies, judged = [list(range(40))], [TrainingText.read(path) for path in learnt[:3]]

    def trained(of: FrozenTarget, folder: Path) -> tuple[Learner, list[float], float]:
        folder.mkdir()
        losses: list[float] = []
        for end in (2, STEPS):  # the second goes on from the first one's file
            training = Training(untrained(head, of, replies), folder / "state")
            losses += [at.loss for at in training.run(learnt, end, lambda: False)]
        put_heads(folder, training.trainee.published())
        return training.trainee, losses, accepted_length(training.trainee, judged)

    here, losses, length = trained(target, tmp_path / "cpu")
    with card():
        there, others, other = trained(target_there(target.checkpoint), tmp_path / "gpu")
        assert everywhere(there) == {GPU}
        alike(untrained(head, target, replies).state_dict(), here.state_dict(), there.state_dict())
    assert others == pytest.approx(losses, rel=1e-4)
    assert other == pytest.approx(length, rel=0.1)
    names = [sorted(file.name for file in (tmp_path / place).iterdir()) for place in ("cpu", "gpu")]
    assert names[0] == names[1]


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("adapted", "narrow"), [(False, True), (True, False)])
def test_a_draft_learns_the_same(
    adapted: bool,
    narrow: bool,
    target: FrozenTarget,
    draft: Checkpoint,
    learnt: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By every divergence, in rounds, stopped and gone on with; `narrow`: in parts, blocks and layers."""
    if narrow:
        monkeypatch.setattr(learner_module, "SCORES", 6000)
        monkeypatch.setattr(draft_module, "SCORES", 6000)
        monkeypatch.setattr(draft_module, "PART", 1)
        monkeypatch.setattr(draft_module, "ACTIVATIONS", 1)
    judged = [TrainingText.read(path) for path in learnt[:1]]

    def trained(of: FrozenTarget, folder: Path) -> tuple[Distilled, list[float]]:
        folder.mkdir()
        losses: list[float] = []
        for stop in (2, 99):
            course = Distilling(of, draft, adapted, folder, judged, 4)
            taken: list[float] = []

            def stopped(taken: list[float] = taken, stop: int = stop) -> bool:
                return len(taken) >= stop

            for at in course.run(learnt[:2], 3, stopped):
                taken.append(at.loss)
            losses += taken
        assert course.result is not None
        put_draft(folder, course.result.learner, draft)
        return course.result, losses

    here, losses = trained(target, tmp_path / "cpu")
    with card():
        there, others = trained(target_there(target.checkpoint), tmp_path / "gpu")
        assert everywhere(there.learner) == {GPU}
        begun = DraftLearner(target, draft, "forward", adapted=False).weights()
        alike(begun, here.learner.weights(), there.learner.weights())
    assert others == pytest.approx(losses, rel=1e-4)
    assert there.divergence == here.divergence
    assert {file.name for file in (tmp_path / "gpu").iterdir()} == {file.name for file in (tmp_path / "cpu").iterdir()}


@pytest.mark.parametrize(("family", "head"), [("llama", None), ("llama", "int8"), ("granite", None), ("gemma4", None)])
def test_its_tables_give_what_those_of_a_target_on_the_cpu_give(
    family: str, head: Quant | None, tmp_path: Path
) -> None:
    """Factors, a cap, and a head in eight bits."""
    opened = Checkpoint.open(checkpoint(tmp_path / "target", **FAMILIES[family]))
    host, drawn = FrozenTarget(opened, ReferenceDecoder(opened)), torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCAB, (2, 5), generator=drawn)
    states = torch.randn(9, opened.config.hidden, generator=drawn)
    with card():
        there = target_there(opened, head)
        assert there.device == GPU
        embedded, normed, logits = (
            made.cpu() for made in (there.embed(tokens), there.final_norm(states.to(GPU)), there.logits(states.to(GPU)))
        )
    torch.testing.assert_close(embedded, host.embed(tokens))
    torch.testing.assert_close(normed, host.final_norm(states))
    exact = host.logits(states)
    near = 0.05 * float(exact.std()) if head else 1e-5
    torch.testing.assert_close(logits, exact, rtol=1e-4, atol=near)


def test_states_are_recorded_though_passes_were_captured_before(tmp_path: Path) -> None:
    """A pair is loaded, which captures its passes, before a tune says which states it looks at."""
    folder = checkpoint(tmp_path / "target", **SHAPE)
    text, layers = list(range(3, 60)), (1, 2)

    def model(gpu: torch.device) -> CachedModel[DeviceModel]:
        opened = Checkpoint.open(folder)
        decoder = DeviceDecoder(opened.config, load(opened, None, gpu, torch.float32), CONTEXT, gpu, torch.float32)
        return cast(CachedModel[DeviceModel], device_runner(decoder, None, VOCAB, gpu).target)

    host = ReferenceDecoder(Checkpoint.open(folder))
    host.record_states(layers)
    CachedModel(host).begin(text)
    with fake_torch(1, computes=True) as fake:
        cached = model(torch.device("cuda", 0))
        cached.begin(text)
        captures = len(fake.runtime.captures)
        for _ in range(2):
            cached.model.record_states(layers)
            cached.keep(0)
            cached.begin(text)
        assert not fake.runtime.problems
        assert len(fake.runtime.captures) == 2 * captures, "captured anew once"
        found = [cached.model.states(layer, 0, len(text) - 1).cpu() for layer in layers]
    for layer, made in zip(layers, found, strict=True):
        torch.testing.assert_close(made, host.states(layer, 0, len(text) - 1), rtol=1e-3, atol=1e-3)
