"""The trial of trained heads: every text is compared, and what cannot be measured is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from specchat.bench.contender import BenchPrompt, Different, Run
from specchat.bench.ours import Ours
from specchat.engine.errors import EngineError
from specchat.engine.loading import load
from specchat.engine.options import Sampling
from specchat.engine.pair import ModelSource, PairSpec
from specchat.engine.session import Session
from specchat.tune import trial
from specchat.tune.families import untrained
from specchat.tune.replies import Question
from specchat.tune.target import FrozenTarget
from specchat.tune.trial import Speeds, speeds
from specchat.tune.workshop import put_heads
from tests.tune.conftest import CHATS, chats

ASKED = [Question(str(i), chat, Sampling()) for i, chat in enumerate(CHATS)]


@pytest.fixture
def headed(pair: PairSpec, target: FrozenTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(trial, "TOKENS", 8)
    monkeypatch.setattr(trial, "PROMPTS", 3)
    put_heads(tmp_path, untrained("medusa", target, []).published())
    return load(replace(pair, heads={"medusa": ModelSource(path=str(tmp_path))}), lambda _: None)


def test_speeds_are_those_of_all_replies(headed: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    run = Ours.run

    def timed(self: Ours, prompt: BenchPrompt, most: int) -> Run:
        seen.append((self.speculation.strategy, prompt.id))
        return replace(run(self, prompt, most), seconds=2.0 if self.speculation.strategy == "plain" else 0.5)

    monkeypatch.setattr(Ours, "run", timed)
    found = speeds(headed, "medusa", ASKED, lambda _: None)
    # Of ten prompts three, spread over all.
    assert {prompt for _, prompt in seen} == {"0", "3", "6"}
    assert set(found.headed) == {"medusa"}
    assert set(found.others) == {"plain"}
    assert found.headed["medusa"] == pytest.approx(4 * found.others["plain"])
    assert 0 < found.others["plain"] <= 8 / 2.0
    assert found.rise


def test_a_text_that_differs_is_found(headed: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Ours.run

    def other(self: Ours, prompt: BenchPrompt, most: int) -> Run:
        made = run(self, prompt, most)
        wrong = self.speculation.strategy == "medusa" and prompt.id == "3"
        return replace(made, tokens=(*made.tokens[:-1], 0)) if wrong else made

    monkeypatch.setattr(Ours, "run", other)
    with pytest.raises(Different, match="medusa"):
        speeds(headed, "medusa", ASKED, lambda _: None)


def test_what_cannot_be_measured_is_told(headed: Session, session: Session) -> None:
    with pytest.raises(EngineError, match="cannot be used: this pair has no such heads"):
        speeds(session, "medusa", ASKED, lambda _: None)
    (long,) = chats(["x" * headed.info.context])
    with pytest.raises(EngineError, match="No held-out prompt leaves room for 8 tokens"):
        speeds(headed, "medusa", [Question("0", long, Sampling())], lambda _: None)


def test_the_fastest_are_compared() -> None:
    assert not Speeds({"eagle3": 3.0, "eagle3-tree": 4.0}, {"plain": 2.0, "draft": 4.0}).rise
    assert Speeds({"eagle3": 3.0, "eagle3-tree": 4.1}, {"plain": 2.0, "draft": 4.0}).rise
