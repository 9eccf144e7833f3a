"""Replies after which plain steps are repeated, whatever is known of their time."""

import pytest

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.yardstick import Yardstick
from specchat.engine.protocol.events import Event, Finished, Started
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

SAMPLING = Sampling(seed=3, temperature=0.8, repetition_penalty=1.2, frequency_penalty=0.1)
TIMES = 5
"""Repeated steps of a reply."""


def always_repeated(monkeypatch: pytest.MonkeyPatch) -> list[StepOutcome]:
    """Have every reply repeat `TIMES` steps; return those that were."""
    made = list[StepOutcome]()

    def add(yardstick: Yardstick, outcome: StepOutcome) -> None:
        # As long as expected, whatever the load is.
        times = yardstick._reply.load * yardstick._ratio.known(yardstick.load, yardstick._costs.load.value)[0]
        yardstick._reply.repeated.add(outcome.verify_ms, times)
        made.append(outcome)

    monkeypatch.setattr(Yardstick, "repeats", lambda yardstick: len(yardstick._reply.repeated._times) < TIMES)
    monkeypatch.setattr(Yardstick, "add_repeated", add)
    return made


def chat(session: Session, speculation: Speculation) -> list[Event]:
    """Two turns, the second of which goes on from the first one's cache."""
    session.forget()
    first = Message("user", "ab")
    events = list(session.generate(Generate(1, (first,), SAMPLING, Limits(12), speculation)))
    ended = events[-1]
    assert isinstance(ended, Finished)
    turns = (first, Message("assistant", ended.text), Message("user", "cd"))
    return [*events, *session.generate(Generate(2, turns, SAMPLING, Limits(12), speculation))]


def outcome(events: list[Event]) -> list[object]:
    """What does not depend on time."""
    reused = [event.reused for event in events if isinstance(event, Started)]
    ended = [(e.token_ids, e.text, e.reason) for e in events if isinstance(e, Finished)]
    return [reused, ended]
