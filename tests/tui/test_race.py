"""Races over the scripted engine: the seam in the session, the lanes and their verdict."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from conftest import CATALOG, LAUNCH

from specchat.chat.store import Store
from specchat.engine.protocol.events import Event, Failed, Finished, Started
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair_info import StrategyStatus
from specchat.engine.protocol.requests import Cancel, Generate, Request
from specchat.engine.protocol.stats import Stats
from specchat.insight.race import Race, RaceView, first_difference, rival
from specchat.service.chat_service import ChatService
from specchat.service.settings import Preferences
from specchat.tui.screens.race import _lane_rows
from specchat.tui.session import AppSession
from tests.fake import INFO, FakeEngine
from tests.insight.replies import step_of

TEXT = "one two three four five six seven eight nine ten"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ready(engine: FakeEngine, preferences: Preferences = LAUNCH.preferences) -> AppSession:
    session = AppSession(engine, replace(LAUNCH, preferences=preferences))
    engine.start()
    session.load(CATALOG.pairs[0])
    session.poll()
    return session


def asked(engine: FakeEngine) -> list[Generate]:
    return [request for request in engine.requests if isinstance(request, Generate)]


def played(race: Race, steps: Sequence[int], ids: Sequence[int], *, length: int = 0) -> None:
    """Let the lane that runs accept `steps` of `length` drafts and end with `ids`."""
    lane = race.lanes[race.at]
    happened(race, Started(lane.reply.id, 9, 0, 1, lane.speculation))
    for accepted in steps:
        happened(race, replace(step_of(accepted, length), id=lane.reply.id))
    happened(race, Finished(lane.reply.id, "stop", lane.reply.text, tuple(ids), Stats()))


def happened(race: Race, event: Event) -> bool:
    """Let the engine's event reach the race; False where nobody listens for it."""
    return race.service.listeners.notify(event)


def race_of(speculation: Speculation, temperature: float = 0.7) -> tuple[Race, list[Request]]:
    """A race over an engine that never answers, and the requests sent to it."""
    engine = FakeEngine()
    service = ChatService(engine, Store(), Preferences())
    engine.start()
    engine._begin = lambda: None  # type: ignore[method-assign]
    sampling = Sampling(seed=3, temperature=temperature)
    return Race(service, Generate(0, (Message("user", "hi"),), sampling, Limits(50), speculation)), engine.requests


# The session


def test_a_race_asks_the_last_prompt_again_and_leaves_the_chat_alone() -> None:
    engine = FakeEngine((TEXT,))
    session = ready(engine, Preferences(system="Be kind."))
    session.send("first")
    session.poll()
    session.send("second")
    session.poll()
    before, reply = [turn.prompt for turn in session.conversation.turns], session.last_reply
    saved = session.ledger.total
    assert reply is not None
    assert session.racing.start() == ""
    assert session.busy
    while session.busy:
        assert session.poll() == []
    race = session.racing.race
    assert race is not None
    own, plain, draft = asked(engine)[-3:]
    assert own.messages == plain.messages == draft.messages
    assert plain.sampling == draft.sampling == reply.sampling
    assert (plain.speculation.strategy, draft.speculation) == ("plain", own.speculation)
    assert len({own.id, plain.id, draft.id}) == 3
    assert [turn.prompt for turn in session.conversation.turns] == before
    assert session.last_reply is reply
    assert session.ledger.total == saved
    verdict = race.verdict
    assert verdict is not None
    assert verdict.identical
    assert verdict.times is not None
    assert verdict.times > 1
    assert [lane.reply.text for lane in race.lanes] == [TEXT, TEXT]


def test_nothing_else_runs_during_a_race() -> None:
    clock = Clock()
    engine = FakeEngine((TEXT,), tokens_per_second=10, clock=clock)
    session = ready(engine)
    assert "ask something first" in session.racing.start()
    session.send("hi")
    assert "a reply is running" in session.racing.start()
    clock.now = 5
    session.poll()
    assert session.racing.start() == ""
    assert "a reply is running" in session.racing.start()
    assert "a race is running" in session.send("more")
    assert "a race is running" in session.regenerate()
    assert not session.count("more")


def test_a_race_that_is_closed_is_cancelled_and_the_chat_goes_on() -> None:
    clock = Clock()
    engine = FakeEngine((TEXT,), tokens_per_second=10, clock=clock)
    session = ready(engine)
    session.send("hi")
    clock.now = 5
    session.poll()
    session.racing.start()
    clock.now = 5.5
    session.poll()
    race = session.racing.race
    assert race is not None
    assert race.lanes[0].reply.text == "one two three four five"
    session.racing.end()
    assert isinstance(engine.requests[-1], Cancel)
    assert (race.state, session.racing.race) == ("stopped", None)
    assert session.send("again") == ""
    clock.now = 20
    session.poll()
    assert session.last_reply is not None
    assert session.last_reply.text == TEXT


def test_another_pair_ends_the_race() -> None:
    engine = FakeEngine((TEXT,), tokens_per_second=10, clock=Clock())
    session = ready(engine)
    session.send("hi")
    session.stop()
    session.poll()
    session.racing.start()
    session.load(CATALOG.pairs[1])
    assert session.racing.race is None
    session.poll()
    assert session.loaded.info is not None


def test_a_race_ends_with_the_engine_or_a_failure() -> None:
    for kind in ("died", "memory"):
        engine = FakeEngine((TEXT,))
        session = ready(engine)
        session.send("hi")
        session.poll()
        session.racing.start()
        if kind == "died":
            engine.die()
        else:
            engine._timed.clear()
            engine._ready.append(Failed(asked(engine)[-1].id, "memory", "out of\x1b memory"))
        session.poll()
        race = session.racing.race
        assert race is not None
        assert (race.state, race.verdict, session.racing.running) == ("failed", None, False)
        assert race.error
        assert "\x1b" not in race.error
        session.poll()
        assert session.send("go on") == ""


def test_without_any_drafting_strategy_there_is_no_race() -> None:
    engine = FakeEngine((TEXT,), info=replace(INFO, strategies=(StrategyStatus("plain", True),)))
    session = ready(engine, Preferences(strategy="plain"))
    session.send("hi")
    session.poll()
    assert "nothing to race" in session.racing.start()


# Lanes and verdict


def test_the_lanes_run_one_after_the_other() -> None:
    race, sent = race_of(Speculation.of("draft", 2))
    assert len(sent) == 1
    played(race, [0, 0, 0], [5, 6, 7])
    assert (len(sent), race.at, race.verdict) == (2, 1, None)
    played(race, [2], [5, 6, 7], length=2)
    verdict = race.verdict
    assert verdict is not None
    assert (verdict.identical, verdict.difference, verdict.expected) == (True, None, True)
    assert verdict.times == pytest.approx((3 * 10.5) / (2 * 2 + 12 + 0.5))
    assert not happened(race, Finished(99, "stop", "", (), Stats()))


@pytest.mark.parametrize(
    ("acceptance", "temperature", "expected"),
    [("coupled", 0.7, True), ("ratio", 0.7, False), ("block", 0.7, False), ("ratio", 0.0, True)],
)
def test_different_texts_are_a_fault_unless_only_the_distribution_is_the_same(
    acceptance: str, temperature: float, expected: bool
) -> None:
    race, _ = race_of(Speculation("draft", 2, acceptance), temperature)
    played(race, [0, 0], [5, 6])
    played(race, [1], [5, 8], length=2)
    verdict = race.verdict
    assert verdict is not None
    assert (verdict.identical, verdict.difference, verdict.expected) == (False, 1, expected)


def test_a_cancelled_lane_gives_no_verdict() -> None:
    race, sent = race_of(Speculation.of("draft", 2))
    happened(race, Finished(race.lanes[0].reply.id, "cancelled", "", (), Stats()))
    assert (race.state, race.verdict, len(sent)) == ("stopped", None, 1)
    race.stop()
    assert len(sent) == 1


def test_the_first_difference() -> None:
    assert first_difference((1, 2), (1, 2)) is None
    assert first_difference((1, 2), (1, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference((), ()) is None


def test_who_races_plain() -> None:
    lookup = Speculation.of("lookup", 3)
    assert rival(lookup, "draft", {}, INFO) == lookup
    assert rival(Speculation(), "draft", {"draft": 7}, INFO) == Speculation.of("draft", 7)
    statuses = (StrategyStatus("plain", True), StrategyStatus("draft", False), StrategyStatus("swift", True))
    assert rival(Speculation(), "draft", {}, replace(INFO, strategies=statuses)) == Speculation.of("swift")
    assert rival(Speculation(), "plain", {}, replace(INFO, strategies=statuses[:2])) is None


# What is seen


def test_the_plain_lane_is_played_again_beside_the_other() -> None:
    race, _ = race_of(Speculation.of("draft", 2))
    view, (plain, draft) = RaceView(race), race.lanes
    happened(race, Started(plain.reply.id, 9, 0, 1, plain.speculation))
    happened(race, replace(step_of(0, 0), id=plain.reply.id))
    view.advance(99)
    assert (view.steps(plain), view.steps(draft)) == (1, 0)
    happened(race, replace(step_of(0, 0), id=plain.reply.id))
    happened(race, Finished(plain.reply.id, "stop", "", (1, 2), Stats()))
    view.advance(99)
    assert (view.steps(plain), view.steps(draft)) == (0, 0)
    happened(race, Started(draft.reply.id, 9, 0, 1, draft.speculation))
    happened(race, replace(step_of(1, 2), id=draft.reply.id))
    view.advance(99)
    assert (view.milliseconds, view.steps(plain), view.steps(draft)) == (16.5, 1, 1)
    happened(race, Finished(draft.reply.id, "stop", "", (1, 2), Stats()))
    assert view.moving
    view.advance(0.001)
    assert (view.milliseconds, view.steps(plain), view.steps(draft)) == (0, 0, 0)
    view.advance(5)
    assert (view.moving, view.milliseconds, view.steps(plain)) == (True, 5 / 8 * 21, 1)
    view.advance(3.1)
    assert (view.steps(plain), view.moving, view.milliseconds) == (2, False, 21)
    view.restart()
    assert (view.moving, view.steps(plain), view.steps(draft)) == (True, 0, 0)
    view.faster(-9)
    view.advance(4)
    assert (view.pace, view.milliseconds) == ("1524x slower", 21 / 8)


def test_a_lane_that_is_through_is_all_there() -> None:
    """A server may count a token more in one of them, such as that which ends the reply."""
    race, _ = race_of(Speculation.of("draft", 2))
    played(race, [0, 0, 0], ())
    played(race, [1], (), length=2)
    view = RaceView(race)
    view.advance(0)
    view.advance(99)
    counts = [_lane_rows(view, lane, 40, 5)[2].plain.split()[-1] for lane in race.lanes]
    assert counts == ["3/3", "2/2"]


def test_a_running_race_is_not_played_again() -> None:
    race, _ = race_of(Speculation.of("draft", 2))
    view = RaceView(race)
    events: list[Event] = [Started(1, 9, 0, 1, race.lanes[0].speculation), replace(step_of(0, 0), id=1)]
    for event in events:
        happened(race, event)
    view.advance(0)
    view.restart()
    assert view.milliseconds == 10.5
