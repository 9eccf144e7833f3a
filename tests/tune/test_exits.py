"""Adapters for early exit: what they learn from, that they bring the exit nearer, and that the text stays."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from specchat.engine.drafters.early_exit import EarlyExitDrafter
from specchat.engine.errors import ModelError
from specchat.engine.hardware.gpu import Gpu
from specchat.engine.loading import heads, load
from specchat.engine.memory.need import Model, Place
from specchat.engine.memory.plan import plan
from specchat.engine.protocol.options import Acceptance, Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.engine.weights.exit_adapter import ExitAdapter
from specchat.tune.exits import ExitLearner, exits, put_adapter, size
from specchat.tune.replies import collect, questions
from specchat.tune.rows import Batch, TrainingText
from specchat.tune.target import FrozenTarget
from specchat.tune.training import Training
from tests.engine.test_lossless import finished, reply
from tests.tune.conftest import CHATS

PLACES = (1, 3)


@pytest.fixture
def rows(session: Session, target: FrozenTarget, tmp_path: Path) -> list[Path]:
    folder = tmp_path / "rows"
    folder.mkdir()
    asked, _ = questions(CHATS, Sampling(), 12)
    return [path for path in collect(session, target.model, asked, PLACES, folder) if path]


@pytest.fixture
def learner(target: FrozenTarget) -> ExitLearner:
    torch.manual_seed(3)
    return ExitLearner(target, PLACES)


@pytest.fixture
def adapter(learner: ExitLearner, tmp_path: Path) -> Path:
    """One that changes much."""
    with torch.no_grad():
        learner.up[1].normal_()
    folder = tmp_path / "adapter"
    folder.mkdir()
    put_adapter(folder, learner, 3)
    return folder


@pytest.mark.parametrize(
    ("layers", "chosen", "expected"),
    [(32, None, (1, 4, 8, 16)), (8, 2, (1, 2, 4)), (5, 3, (1, 2, 3)), (2, None, (1,)), (1, None, ())],
)
def test_exits_that_are_tried(layers: int, chosen: int | None, expected: tuple[int, ...]) -> None:
    assert exits(layers, chosen) == expected


def test_a_size_has_the_weights_that_are_trained(learner: ExitLearner, target: FrozenTarget) -> None:
    trained = sum(part.numel() for part in learner.parameters() if part.requires_grad)
    assert size(target.config, PLACES).weights == trained


def test_an_untrained_exit_is_that_of_transformers(
    learner: ExitLearner, target: FrozenTarget, rows: list[Path]
) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(target.checkpoint.folder, dtype=torch.float32)
    row = TrainingText.read(rows[0])
    with torch.no_grad():
        hidden = theirs(row.tokens[None, :-1], output_hidden_states=True).hidden_states
        for place, layers in enumerate(PLACES):
            wanted = theirs.lm_head(theirs.model.norm(hidden[layers][0]))
            torch.testing.assert_close(learner._logits(place, hidden[layers][0]), wanted, rtol=1e-4, atol=1e-4)
            right = wanted[row.start - 1 :].argmax(-1) == row.tokens[row.start :]
            assert learner.right(place, row) == right.tolist()


def test_the_loss_is_the_divergence_from_the_target(
    learner: ExitLearner, target: FrozenTarget, rows: list[Path]
) -> None:
    batch = Batch.of([TrainingText.read(path) for path in rows[:3]])
    row, at = batch.replied()
    p = target.logits(batch.states[6][row, at - 1]).softmax(-1)
    kl = [
        (p * (p.log() - learner._logits(place, batch.states[layers][row, at - 1]).log_softmax(-1))).sum(-1).mean()
        for place, layers in enumerate(PLACES)
    ]
    torch.testing.assert_close(learner.loss(batch, 0), (kl[0] + kl[1]) / 2)


def test_training_brings_the_exits_nearer_and_leaves_the_target(
    learner: ExitLearner, rows: list[Path], tmp_path: Path
) -> None:
    batch = Batch.of([TrainingText.read(path) for path in rows])
    held = [TrainingText.read(path) for path in rows]
    first, before = float(learner.loss(batch, 0).detach()), learner.choices(held)
    for _ in Training(learner, tmp_path / "state").run(rows, 60, lambda: False):
        pass
    assert float(learner.loss(batch, 0).detach()) < 0.97 * first
    after = learner.choices(held)
    assert [one.layers for one in after] == list(PLACES)
    assert max(b.right - a.right for a, b in zip(before, after, strict=True)) > 0
    assert {name.split(".")[0] for name, _ in learner.named_parameters()} == {"down", "up"}
    again = Training(ExitLearner(learner._target, PLACES), tmp_path / "state")
    assert again.step == 60
    torch.testing.assert_close(again.trainee.up[1], learner.up[1], rtol=0, atol=0)


def test_a_published_adapter_is_the_trained_one(learner: ExitLearner, adapter: Path, target: FrozenTarget) -> None:
    found = ExitAdapter.open(adapter, target.config)
    assert found.layer == 3
    states = torch.randn(4, target.config.hidden)
    wanted = learner._logits(1, states)
    made = target.logits(found(states))
    torch.testing.assert_close(made, wanted, rtol=2e-2, atol=2e-2)
    assert not torch.allclose(target.logits(states), made, atol=0.1)


@pytest.mark.parametrize("acceptance", ["coupled", "ratio", "block"])
def test_an_adapter_drafts_and_the_text_stays(pair: PairSpec, adapter: Path, acceptance: Acceptance) -> None:
    session = load(replace(pair, exit=str(adapter), exit_layer=1), lambda _: None)
    drafter = session.drafters["early-exit"]
    assert isinstance(drafter, EarlyExitDrafter)
    assert (drafter.search.done, drafter.search.best) == (True, 3)
    greedy = acceptance != "coupled"  # other tests keep the distribution, not the draws
    sampling = Sampling() if greedy else Sampling(temperature=0.8, seed=3)
    without = load(pair, lambda _: None)
    plain = finished(reply(without, "abab", sampling, Limits(40), Speculation()))
    drafted = finished(reply(session, "abab", sampling, Limits(40), Speculation("early-exit", 4, acceptance)))
    assert drafted.token_ids == plain.token_ids
    bare = finished(
        reply(load(replace(pair, exit_layer=3), lambda _: None), "abab", sampling, Limits(40),
              Speculation("early-exit", 4, acceptance))
    )  # fmt: skip
    assert bare.token_ids == plain.token_ids
    # It drafts other tokens.
    assert drafted.stats.per_step_accepted != bare.stats.per_step_accepted


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_an_adapter_counts_as_memory(
    place: Place, pair: PairSpec, adapter: Path, target: FrozenTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it, alone = replace(pair, exit=str(adapter)), plan(Model(target.config, place), None, 256)
    found = ExitAdapter.open(adapter, target.config)
    needed = found.down.nbytes + found.up.nbytes
    assert heads.with_adapter(pair, alone) == (pair, alone, "")
    for room, fits in ((needed, True), (0, False)):
        free = int((alone.need(place).total + room) / 0.95) + 1000
        monkeypatch.setattr(heads, "free_memory", lambda free=free: free if place == "cpu" else 0)
        monkeypatch.setattr(heads, "find_gpu", lambda free=free: Gpu("RTX 4090", free if place == "cuda" else 0))
        left, planned, words = heads.with_adapter(with_it, alone)
        assert planned.need(place).total - alone.need(place).total == needed * fits
        assert left == (with_it if fits else pair)
        assert words.startswith("early-exit drafts without its adapter: it takes") != fits
    if place == "cpu":
        monkeypatch.undo()
        taken = load(with_it, lambda _: None).info.load.memory - load(pair, lambda _: None).info.load.memory
        assert taken == needed
        monkeypatch.setattr(heads, "free_memory", lambda: 0)
        assert "early-exit drafts without its adapter" in load(with_it, lambda _: None).info.notes.warning


def test_files_that_are_no_adapter_of_this_target_are_a_reason(pair: PairSpec, adapter: Path) -> None:
    def reason(folder: Path) -> str:
        status = load(replace(pair, exit=str(folder)), lambda _: None).info.strategy("early-exit")
        assert not status.available
        return status.reason

    settings = json.loads((adapter / "config.json").read_text())
    for change, words in (
        ({"exit_layer": 6}, "is an adapter after layer 6 of a target with"),
        ({"hidden_size": 8}, "of a target with 8 values in a hidden state"),
        ({"model_type": "llama"}, "holds no adapter for early exit"),
        ({"exit_layer": "2"}, "holds no adapter for early exit"),
    ):
        (adapter / "config.json").write_text(json.dumps(settings | change))
        assert words in reason(adapter)
    (adapter / "config.json").write_text(json.dumps(settings))
    (adapter / "model.safetensors").write_bytes(b"x" * 99)
    assert "model.safetensors" in reason(adapter)
    assert "gone" in reason(adapter.parent / "gone")


def test_an_adapter_of_no_numbers_is_not_written(learner: ExitLearner, tmp_path: Path) -> None:
    with torch.no_grad():
        learner.up[0][0, 0] = float("nan")
    with pytest.raises(ModelError, match="no numbers"):
        put_adapter(tmp_path, learner, 1)
    assert not (tmp_path / "model.safetensors").exists()
