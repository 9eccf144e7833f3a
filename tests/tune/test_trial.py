"""Held-out speeds: of given samples, every text compared, and what cannot be measured is reported."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.bench.contender import BenchPrompt, Different, Run
from specchat.bench.interleaved import Sample
from specchat.bench.ours import Ours
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.stats import Stats
from specchat.engine.session import Session
from specchat.tune import gain
from specchat.tune.families import untrained
from specchat.tune.gain import HeldOutSpeed, Side, TuneComparison, compared, held_out_speeds
from specchat.tune.replies import Question
from specchat.tune.target import FrozenTarget
from specchat.tune.workshop import put_heads
from tests.tune.conftest import CHATS, chats

ASKED = [Question(str(i), chat, Sampling()) for i, chat in enumerate(CHATS)]
BY_HEADS, PLAINLY = [Speculation.of("medusa", 2)], [Speculation.of(name, 2) for name in ("plain", "draft", "lookup")]
MS = {"plain": 40.0, "one": 20.0, "two": 10.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TOKENS", 8), ("PROMPTS", 3), ("REPEATS", 2)):
        monkeypatch.setattr(gain, name, value)


@pytest.fixture
def headed(pair: PairSpec, target: FrozenTarget, tmp_path: Path) -> PairSpec:
    put_heads(tmp_path, untrained("medusa", target, []).published())
    return replace(pair, heads={"medusa": ModelSource(path=str(tmp_path))})


def found(before: Side, after: Side, asked: list[Question] = ASKED) -> TuneComparison:
    return compared(before, after, asked, lambda _: None, lambda _: None)


def given(session: Session, monkeypatch: pytest.MonkeyPatch, **texts: tuple[int, ...]) -> list[HeldOutSpeed]:
    """The speeds that samples with the times of MS give; one of three replies to a prompt is delayed."""

    def samples(contenders: list[Ours], prompts: list[BenchPrompt], *_: object) -> Iterator[Sample]:
        for prompt in prompts:
            for repeat in range(3):
                for place, one in enumerate(contenders):
                    late = 100.0 if repeat == place else 0.0
                    stats = Stats(draft_ms=0.0, verify_ms=MS[one.name] + late, other_ms=0.0, waited_ms=500.0)
                    yield Sample(one.name, prompt, repeat, Run(texts.get(one.name, (1, 2)), 9.0, 0.1, 1, stats))

    monkeypatch.setattr(gain, "measure", samples)
    plain, *others = (Ours(session, Speculation.of("lookup"), Sampling(), name=name) for name in MS)
    return held_out_speeds(plain, others, [BenchPrompt(str(n), "", (), ()) for n in range(3)], lambda _: None)


def test_times_are_those_of_steps_over_plain(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = given(session, monkeypatch)
    assert (one.times, two.times) == (dict.fromkeys("012", 2.0), dict.fromkeys("012", 4.0))
    assert (one.tokens_per_second, two.tokens_per_second) == (pytest.approx(100.0), pytest.approx(200.0))


def test_a_text_that_differs_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Different, match="lookup"):
        given(session, monkeypatch, two=(1, 3))


@pytest.mark.parametrize("room", [None, 0])
def test_the_fastest_of_both_sides_are_compared_whether_or_not_memory_holds_both(
    room: int | None, pair: PairSpec, headed: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gain, "free_bytes", lambda _: room)
    asked: list[tuple[str, str]] = []
    run = Ours.run

    def timed(self: Ours, prompt: BenchPrompt, most: int) -> Run:
        asked.append((self.speculation.strategy, prompt.id))
        made = run(self, prompt, most)
        assert made.stats is not None
        ms = {"medusa": 10.0, "lookup": 20.0, "plain": 40.0}[self.speculation.strategy]
        return replace(made, stats=replace(made.stats, draft_ms=0.0, verify_ms=ms, other_ms=0.0, waited_ms=0.0))

    monkeypatch.setattr(Ours, "run", timed)
    # The pair has no draft: that is left out.
    result = found(Side(pair, PLAINLY), Side(headed, BY_HEADS))
    assert {prompt for _, prompt in asked} == {"0", "3", "6"}
    assert (result.before.strategy, result.after.strategy) == ("lookup", "medusa")
    assert result.gain.times == pytest.approx(2.0)
    assert result.gain.sure


def test_a_text_of_the_tuned_side_that_differs_is_found(
    pair: PairSpec, headed: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Ours.run

    def other(self: Ours, prompt: BenchPrompt, most: int) -> Run:
        made = run(self, prompt, most)
        wrong = self.speculation.strategy == "medusa" and prompt.id == "3"
        return replace(made, tokens=(*made.tokens[:-1], 0)) if wrong else made

    monkeypatch.setattr(Ours, "run", other)
    with pytest.raises(Different, match="medusa"):
        found(Side(pair, PLAINLY), Side(headed, BY_HEADS))


def test_what_cannot_be_measured_is_told(pair: PairSpec, headed: PairSpec, session: Session) -> None:
    with pytest.raises(EngineError, match="cannot be used: this pair has no such heads"):
        found(Side(pair, PLAINLY), Side(pair, BY_HEADS))
    (long,) = chats(["x" * session.info.context])
    with pytest.raises(EngineError, match="No held-out prompt leaves room for 8 tokens"):
        found(Side(pair, PLAINLY), Side(headed, BY_HEADS), [Question("0", long, Sampling())])
