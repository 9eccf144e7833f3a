"""A client that watches the replies of others."""

import os

from specchat.engine.protocol.events import Counted, Elsewhere, Event, Finished, Loaded, OtherClient, Started, Step
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Count, Load, Watch
from tests.process.conftest import PAIR, ask, over, until
from tests.resident.conftest import Connect


def load(engine: EnginePort) -> None:
    engine.send(Load(PAIR))
    until(engine, lambda event: isinstance(event, Loaded))


def ended(event: Event) -> bool:
    return isinstance(event, Elsewhere) and isinstance(event.event, Finished)


def elsewhere(events: list[Event]) -> list[Event]:
    return [event.event for event in events if isinstance(event, Elsewhere)]


def test_all_of_a_reply_is_told_from_its_beginning(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    other.send(Watch(steps=True))
    other.send(Count(7, ()))
    until(other, lambda event: isinstance(event, Counted))
    one.send(ask("hello", 3))
    own = until(one, over)
    told = elsewhere(until(other, ended))
    head = told[0]
    assert isinstance(head, OtherClient)
    assert (head.client, head.pid, head.prompt) == ("test", os.getpid(), "hello")
    assert [type(event) for event in told[1:]] == [type(event) for event in own]
    texts = [[step.pieces for step in some if isinstance(step, Step)] for some in (own, told)]
    assert texts[0] == texts[1]
    assert not any(isinstance(event, Elsewhere) for event in own)


def test_only_starts_and_ends_are_told_without_steps_and_nothing_unasked(connect: Connect) -> None:
    one, other, third = connect(), connect(), connect()
    for client in (one, other, third):
        load(client)
    other.send(Watch())
    other.send(Count(7, ()))
    until(other, lambda event: isinstance(event, Counted))
    one.send(ask("hello", 1))
    until(one, over)
    assert [type(event) for event in elsewhere(until(other, ended))] == [OtherClient, Started, Finished]
    third.send(ask("hello", 1))
    assert not elsewhere(until(third, over))


def test_who_comes_in_the_middle_is_told_all_there_is_and_the_owner_nothing_twice(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    one.send(ask("endless", 1))
    own = until(one, lambda event: isinstance(event, Step))
    other.send(Watch(steps=True))
    told = elsewhere(until(other, lambda event: isinstance(event, Elsewhere) and isinstance(event.event, Step)))
    assert [type(event) for event in told] == [OtherClient, Started, Step]
    one.send(Watch(steps=True))
    one.send(Cancel(1))
    own += until(one, over)
    told += elsewhere(until(other, ended))
    assert [type(event) for event in own] == [type(event) for event in told if not isinstance(event, OtherClient)]


def test_a_reply_ends_for_those_who_watch_when_its_client_leaves(connect: Connect) -> None:
    one, other = connect(), connect()
    load(one)
    load(other)
    other.send(Watch())
    one.send(ask("endless", 1))
    until(other, lambda event: isinstance(event, Elsewhere) and isinstance(event.event, Started))
    one.close()
    until(other, ended)
