"""Replies that are written in turns: whose turn it is, and that a short one ends while a long one is written."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from math import ceil

import pytest

from specchat.engine.process.turns import AT_ONCE, FIRST_S, SHARE, TURN_S, ReplyTurns
from specchat.engine.process.worker import Worker
from specchat.engine.protocol.events import Changed, Event, Finished, Started, Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Generate, Load
from specchat.engine.protocol.stats import Stats
from tests.process.conftest import PAIR, ask, until

SECONDS = 1 / 16
"""Of an event."""


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


def events(request: Generate, clock: Clock, seconds: float, back: float = 0.0) -> Iterator[Event]:
    """Events without an end, each after `seconds`, the first of a turn after `back` more."""
    last = 0.0
    while True:
        clock.now += seconds + back * (clock.now > last > 0)
        last = clock.now
        yield Changed(request.id, Speculation(), 0)


def turns_of(*requests: Generate, seconds: float = SECONDS, back: float = 0.0) -> tuple[ReplyTurns, Clock]:
    clock = Clock()
    turns = ReplyTurns(lambda: back, clock)
    for request in requests:
        turns.add(request, events(request, clock, seconds, back))
    return turns, clock


def order(turns: ReplyTurns, count: int) -> list[int]:
    found = []
    for _ in range(count):
        found.append(turns.first.id)
        turns.next()
    return found


def test_replies_have_turns_of_the_same_time() -> None:
    turns, _ = turns_of(ask("a", 1), ask("b", 2))
    first, a_turn = ceil(FIRST_S / SECONDS) + 1, ceil(TURN_S / SECONDS) + 1
    assert order(turns, 2 * first) == [1] * first + [2] * first
    assert order(turns, 4 * a_turn) == [1] * a_turn + [2] * a_turn + [1] * a_turn + [2] * a_turn


def test_an_apps_chat_has_twice_as_much() -> None:
    turns, _ = turns_of(replace(ask("a", 1), chat="key"), ask("b", 2), seconds=1 / 64)
    found = order(turns, 2000)
    assert found.count(1) == pytest.approx(2 * found.count(2), rel=0.2)


def test_a_newcomer_is_next() -> None:
    turns, clock = turns_of(ask("a", 1), ask("b", 2), ask("c", 3))
    while {reply.turns for reply in turns._replies} != {1}:
        order(turns, 1)
    for number in (4, 5):
        turns.add(ask("d", number), events(ask("d", number), clock, SECONDS))
    assert list(dict.fromkeys(order(turns, 80))) == [1, 4, 5, 2, 3]


def test_a_turn_lasts_longer_where_going_on_takes_long() -> None:
    """A reply has SHARE times of what going on with it took."""
    turns, clock = turns_of(ask("a", 1), ask("b", 2), back=1.0)
    order(turns, 80)
    began, reply = clock.now, turns.first.id
    while turns.first.id == reply:
        turns.next()
    while turns.first.id != reply:
        turns.next()
    assert clock.now - began > SHARE * 1.0


def test_those_that_go_on_in_one_pass_have_their_events_in_the_turn_of_each() -> None:
    turns, clock = turns_of(*(ask("a", number) for number in range(1, 5)))
    turns._together = lambda: (1, 3, 4)
    found = order(turns, 6)
    assert found == [1, 3, 4, 1, 3, 4]
    while 2 not in found[-1:]:
        found += order(turns, 1)
    assert found.index(2) > FIRST_S / SECONDS
    alone = ceil(FIRST_S / SECONDS)
    assert order(turns, alone) == [2] * alone
    assert set(order(turns, 4)) == {1, 3, 4}
    began = clock.now
    while turns.first.id != 2:
        turns.next()
    assert clock.now - began > 2 * TURN_S


def test_one_of_those_that_ends_leaves_the_turn_where_it_is() -> None:
    clock = Clock()
    turns = ReplyTurns(lambda: 0.0, clock, together=lambda: (1, 2))
    turns.add(ask("a", 1), events(ask("a", 1), clock, SECONDS))
    turns.add(ask("b", 2), iter([Changed(2, Speculation(), 0)]))
    assert order(turns, 3) == [1, 2, 1]
    assert turns.first.id == 2
    assert turns.next() is None
    assert order(turns, 2) == [1, 1]


def test_a_reply_whose_speed_is_compared_is_alone() -> None:
    turns, _ = turns_of(ask("a", 1))
    assert turns.may_begin(ask("b", 2))
    assert not turns.may_begin(replace(ask("b", 2), cold=True))
    turns, _ = turns_of(replace(ask("a", 1), cold=True))
    assert not turns.may_begin(ask("b", 2))
    turns, _ = turns_of(*(ask("a", number) for number in range(AT_ONCE)))
    assert not turns.may_begin(ask("b", 9))
    assert ReplyTurns(lambda: 0.0).may_begin(replace(ask("b", 2), cold=True))


def test_a_reply_that_ends_or_fails_leaves_the_turn_to_the_next() -> None:
    turns, _ = turns_of(ask("b", 2))
    end = Finished(1, "stop", "", (), Stats())

    def failing() -> Iterator[Event]:
        raise ValueError
        yield end

    turns.add(ask("a", 1), iter([end]))
    turns.add(ask("c", 3), failing())
    found = []
    while len(found) < 60:
        try:
            found.append((turns.first.id, turns.next()))
        except ValueError:
            found.append((3, None))
    assert (1, end) in found
    assert found.count((1, None)) == found.count((3, None)) == 1
    assert {number for number, _ in found[-10:]} == {2}


def test_a_reply_that_is_to_end_is_next() -> None:
    clock, cancelled = Clock(), set[int]()
    turns = ReplyTurns(lambda: 0.0, clock, cancelled.__contains__)
    for number in (1, 2, 3):
        turns.add(ask("a", number), events(ask("a", number), clock, SECONDS))
    assert order(turns, 3) == [1, 1, 1]
    cancelled.add(3)
    assert turns.first.id == 3
    cancelled.clear()
    turns._replies[0].events = iter([Finished(3, "cancelled", "", (), Stats())])
    assert order(turns, 4) == [3, 3, 1, 1]


def test_a_short_reply_ends_while_a_long_one_is_written(loaded: EnginePort) -> None:
    loaded.send(ask("endless", 1))
    until(loaded, lambda event: isinstance(event, Step))
    loaded.send(ask("hello", 2))
    loaded.send(ask("hello", 3))
    seen = until(loaded, lambda event: isinstance(event, Finished) and event.id == 3)
    assert [event.id for event in seen if isinstance(event, Started)] == [2, 3]
    assert all(event.text == "Once there was a fox." for event in seen if isinstance(event, Finished))
    assert len([event for event in seen if isinstance(event, Finished)]) == 2
    loaded.send(Load(replace(PAIR, name="Other")))  # waits for what is written
    loaded.send(ask("hello", 4))
    loaded.send(Cancel(1))
    seen = until(loaded, lambda event: isinstance(event, Finished) and event.id == 4)
    ends = [event.id for event in seen if isinstance(event, Finished)]
    assert ends == [1, 4]


def test_replies_are_written_one_after_another_where_each_would_be_read_again() -> None:
    """A model whose cache cannot be copied loses a text to every other."""
    events = BytesIO()
    worker = Worker(BytesIO(), events, "tests.process.scripted:load", "")
    assert worker._may_begin(ask("a", 1))  # before a pair is loaded it fails, at once
    worker._pair.load(Load(PAIR))
    assert worker._pair.session is not None
    worker._turns.add(ask("a", 1), iter([]))
    assert worker._may_begin(ask("b", 2))
    worker._pair.session.takes_turns = False
    assert not worker._may_begin(ask("b", 2))
