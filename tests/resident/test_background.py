"""A client in the background: its replies make way for those of others, and nobody is told of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from specchat.engine.protocol.events import AwaitingClient, Event, Finished, Loaded, Started, Step
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Generate, Load, Request, Watch
from specchat.engine.protocol.stats import Stats
from specchat.resident.control import engines
from specchat.resident.shared import SharedEngine, join_background
from specchat.tune.replies import ResidentReplies
from tests.process.conftest import PAIR, SCRIPTED, ask, over, until
from tests.resident.conftest import Connect

OTHER = PairSpec("other", "Other", ModelSource(path="/elsewhere"))


def load(engine: EnginePort, pair: PairSpec = PAIR) -> None:
    engine.send(Load(pair))
    until(engine, lambda event: isinstance(event, Loaded))


@pytest.fixture
def behind(runtime: Path) -> Callable[[], SharedEngine]:
    def join() -> SharedEngine:
        engine = join_background(runtime, "tune", SCRIPTED)
        assert engine is not None
        return engine

    return join


def test_its_reply_ends_where_another_client_asks_and_it_may_ask_again(
    connect: Connect, behind: Callable[[], SharedEngine]
) -> None:
    chat, tune = connect(), behind()
    load(chat)
    load(tune)
    chat.send(Watch(steps=True))
    tune.send(ask("endless", 1))
    until(tune, lambda event: isinstance(event, Step))
    chat.send(ask("hello", 1))
    seen = until(chat, over)
    assert [type(event) for event in seen if not isinstance(event, Step)] == [Started, Finished]
    assert not any(isinstance(event, AwaitingClient) for event in seen)
    ended = until(tune, lambda event: isinstance(event, Finished))[-1]
    assert isinstance(ended, Finished)
    assert ended.reason == "cancelled"
    tune.send(ask("hello", 2))
    assert isinstance(until(tune, over)[-1], Finished)
    tune.close()


def test_it_waits_for_the_reply_that_another_client_has_written(
    connect: Connect, behind: Callable[[], SharedEngine]
) -> None:
    chat, tune = connect(), behind()
    load(chat)
    load(tune)
    chat.send(ask("endless", 1))
    until(chat, lambda event: isinstance(event, Step))
    tune.send(ask("hello", 1))
    assert isinstance(until(tune, lambda event: not isinstance(event, Started))[0], AwaitingClient)
    chat.close()
    assert isinstance(until(tune, over)[-1], Finished)
    tune.close()


def test_it_loads_nothing_and_loses_a_pair_that_makes_way_for_another(runtime: Path, connect: Connect) -> None:
    assert join_background(runtime, "tune", SCRIPTED) is None
    chat = connect()
    assert not ResidentReplies(PAIR, runtime, lambda: False, SCRIPTED).open
    assert pairs(runtime) == []
    load(chat)
    replies = ResidentReplies(PAIR, runtime, lambda: False, SCRIPTED)
    assert replies.open
    load(chat, OTHER)
    assert replies(ask("hello", 1)) is None
    assert not replies.open
    assert not ResidentReplies(PAIR, runtime, lambda: False, SCRIPTED).open
    assert pairs(runtime) == ["Other"]
    assert ResidentReplies(OTHER, runtime, lambda: False, SCRIPTED).open


def pairs(runtime: Path) -> list[str]:
    """The pairs of all workers."""
    return [worker["pair"] for found in engines(runtime, "status") for worker in found["workers"]]


def test_replies_are_asked_for_until_they_are_whole(runtime: Path, connect: Connect) -> None:
    chat = connect()
    load(chat)
    replies = ResidentReplies(PAIR, runtime, lambda: False, SCRIPTED)
    chat.send(ask("hello", 1))
    alone = until(chat, over)[-1]
    assert isinstance(alone, Finished)
    found: list[tuple[int, ...] | None] = []
    chat.send(ask("endless", 2))
    until(chat, lambda event: isinstance(event, Step))
    thread = Thread(target=lambda: found.append(replies(ask("hello", 1))))
    thread.start()
    chat.close()
    thread.join(60)
    assert found == [alone.token_ids]
    replies.close()


class Endless:
    """Has any pair, and writes without a pause until the reply is cancelled."""

    def __init__(self) -> None:
        self.cancelled, self.steps = False, 0

    def send(self, request: Request) -> None:
        self.cancelled |= isinstance(request, Cancel)

    def events(self, timeout: float) -> Iterator[Event]:
        del timeout
        if not self.steps:
            self.steps = 1
            yield Loaded(None)  # type: ignore[arg-type]
        while not self.cancelled and self.steps < 1_000:
            self.steps += 1
            yield Step(1, (), 0, 0, 0, 1, 0.0, 0.0, 0.0, 1, "plain")
        yield Finished(1, "cancelled" if self.cancelled else "length", "", (), Stats())


def test_a_stop_ends_a_reply_that_leaves_no_pause(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    endless = Endless()
    monkeypatch.setattr("specchat.tune.replies.join_background", lambda *_: endless)
    replies = ResidentReplies(PAIR, runtime, lambda: endless.steps > 10, SCRIPTED)
    assert replies(ask("endless", 1)) == ()
    assert endless.steps < 20


def test_a_stop_ends_the_reply_that_is_written(runtime: Path, connect: Connect) -> None:
    load(connect())
    looks: list[bool] = []

    def stopped() -> bool:
        looks.append(len(looks) > 2)
        return looks[-1]

    replies = ResidentReplies(PAIR, runtime, stopped, SCRIPTED)
    request: Generate = ask("endless", 1)
    assert replies(request) == ()
    replies.close()
