"""A picture is looked at in parts: other replies go on meanwhile, and one that ends leaves nothing behind."""

from collections.abc import Iterator
from dataclasses import replace
from threading import enumerate as threads

import pytest

from specchat.engine import session as session_module
from specchat.engine.errors import EngineError
from specchat.engine.pictures import tower
from specchat.engine.pictures.in_parts import in_parts, pause
from specchat.engine.protocol.events import Event, Finished, PromptProgress, Started
from specchat.engine.protocol.options import Limits, Message
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.engine.session import Session
from tests.engine.test_turns import alone, same
from tests.pictures.whole import picture

TEXT = Generate(1, (Message("user", "abcabcabc"),), limits=Limits(8))


class Cancelled:
    """A control that cancels at once."""

    def poll(self) -> Cancel | Change | None:
        return Cancel(2)


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session_module, "PART_S", 0.0)
    yield
    assert not [thread for thread in threads() if thread.name == "parts"]


def of_picture(seed: int) -> Generate:
    """A request with a picture that no other test has."""
    return Generate(2, (Message("user", "abc", pictures=(picture(seed=seed),)),), limits=Limits(8))


def begun(session: Session, request: Generate) -> Iterator[Event]:
    """A reply whose picture is being looked at."""
    events = iter(session.generate(request))
    assert isinstance(event := next(events), PromptProgress)
    assert (event.read, event.tokens > 10) == (0, True)
    return events


def last(events: Iterator[Event]) -> Finished:
    *_, event = events
    assert isinstance(event, Finished)
    return event


def test_others_go_on_meanwhile(session: Session) -> None:
    expected = alone(session, TEXT)
    looking = begun(session, of_picture(11))
    assert same(alone(session, TEXT), expected)
    assert isinstance(next(looking), PromptProgress)
    found = last(looking)
    assert found.reason == "length"
    assert same(found, alone(session, replace(of_picture(11), cold=True)))


def test_two_look_at_one_picture(session: Session) -> None:
    one, other = begun(session, of_picture(12)), begun(session, of_picture(12))
    assert any(isinstance(event, Started) for event in one)
    ended = last(other)
    session.forget_read()
    assert same(last(one), ended)


def test_one_that_ends_meanwhile_leaves_the_picture_to_the_next(session: Session) -> None:
    *some, ended = session.generate(of_picture(13), Cancelled())
    assert {type(event) for event in some} == {PromptProgress}
    assert isinstance(ended, Finished)
    assert ended.reason == "cancelled"
    begun(session, of_picture(13)).close()  # type: ignore[attr-defined]
    assert last(begun(session, of_picture(13))).reason == "length"


def test_one_that_is_refused_harms_no_other(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, writing = alone(session, TEXT), iter(session.generate(TEXT))
    next(writing)
    monkeypatch.setattr(tower, "free_memory", lambda: 1000)
    with pytest.raises(EngineError, match="Looking at this picture takes"):
        list(session.generate(of_picture(14)))
    assert same(last(writing), expected)


def test_a_call_in_parts_returns_and_raises_as_it_would() -> None:
    def call(error: bool) -> str:
        pause()
        if error:
            raise ValueError("no")
        return "yes"

    pause()
    parts = in_parts(lambda: call(error=False))
    next(parts)
    with pytest.raises(StopIteration) as ended:
        next(parts)
    assert ended.value.value == "yes"
    with pytest.raises(ValueError, match="no"):
        list(in_parts(lambda: call(error=True)))
