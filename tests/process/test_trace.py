"""Recorded events come back as they were."""

import io
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.engine.protocol.events import Changed, Drafted, Event, Failed, Finished, Loaded, Started, Step
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Cancel, Generate, Load
from specchat.engine.protocol.stats import Stats
from tests import fake, trace

SCREENSHOTS = Path(__file__).parents[2] / "screenshots" / "trace.jsonl"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _events() -> st.SearchStrategy[Any]:
    st.register_type_strategy(str, TEXT)
    st.register_type_strategy(bytes, TEXT.map(str.encode))
    st.register_type_strategy(float, st.floats(allow_nan=False))
    st.register_type_strategy(Drafted, st.builds(Drafted, TEXT, parent=st.sampled_from([None, -1])))
    return st.one_of([st.builds(event) for event in get_args(Event)])


@given(_events())
def test_every_event_survives_a_round_trip(event: Any) -> None:
    line = trace.dump(event)
    again = trace.parse(line)
    assert "\n" not in line
    assert type(again) is type(event)
    assert again == event
    assert _types(again) == _types(event)


def _types(value: Any) -> Any:
    """The types inside a value, so that a list for a tuple shows."""
    if is_dataclass(value):
        return type(value), tuple(_types(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_types, value))
    return type(value)


def test_a_recorded_chat_plays_again(tmp_path: Path) -> None:
    def play(engine: fake.FakeEngine) -> list[Event]:
        engine.start()
        engine.send(Load(PairSpec("p", "P", ModelSource(path="x"))))
        events = engine.poll()
        for reply, text in ((1, "hi"), (2, "more")):
            engine.send(
                Generate(reply, (Message("user", text),), speculation=Speculation("draft", 4 if reply == 1 else 2))
            )
            events += engine.poll()
        return events

    first = play(fake.FakeEngine(["One two three, four five.", "Six seven."]))
    path = tmp_path / "trace.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        trace.write(stream, first)
    recorded = list(trace.read(path))
    assert recorded == first
    assert len(trace.replies(recorded)) == 2
    assert play(fake.FakeEngine(trace.replies(recorded))) == first


def test_the_recording_behind_the_screenshots_can_be_played() -> None:
    events = list(trace.read(SCREENSHOTS))
    replies = trace.replies(events)
    steps = [event for event in events if isinstance(event, Step)]
    (info,) = (event.info for event in events if isinstance(event, Loaded))  # of facts that stood side by side
    assert (info.target.parameters, info.draft.parameters) == (6_689_024, 795_264)
    assert info.template.habits
    assert info.plain.tokens_per_second > 0
    assert len(replies) > 1
    assert all(len(step.drafts) == step.drafted for step in steps)
    assert any(step.accepted < step.drafted for step in steps)


def test_an_unfinished_reply_is_left_out() -> None:
    started = Started(1, 1, 0, 0, Speculation())
    changed = Changed(2, Speculation(), 1)
    finished = Finished(2, "stop", "", (), Stats())
    failed = Failed(3, "model", "no")
    events: list[Event] = [failed, started, started, changed, finished, finished, started]
    assert trace.replies(events) == [(started, changed, finished)]


@pytest.mark.parametrize("line", ["", "[1]", "{}", '{"event": "Nothing"}', '{"event": "Loaded"}', "{"])
def test_a_line_that_holds_no_event_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    stream = io.StringIO()
    trace.write(stream, [Failed(None, "model", "no")])
    path.write_text(stream.getvalue() + line + "\n", encoding="utf-8")
    with pytest.raises(trace.TraceError, match=r"trace\.jsonl, line 2"):
        list(trace.read(path))


def test_requests_are_no_events() -> None:
    with pytest.raises(trace.TraceError):
        trace.parse(trace.dump(Cancel(1)))  # type: ignore[arg-type]


def test_trees_are_read_and_what_is_none_is_refused() -> None:
    step = fake.steps("one two three", (1,), length=4, candidates=2)[0]
    line = trace.dump(step)
    assert trace.parse(line) == step
    old = line.replace(', "parent": null', "").replace(', "parent": -1', "").replace(', "parent": 0', "")
    assert [draft.parent for draft in trace.parse(old).drafts] == [None] * 4  # type: ignore[union-attr]
    with pytest.raises(trace.TraceError):
        trace.parse(line.replace('"parent": 0', '"parent": 3'))
