"""The calls of a streamed reply, and what is left of them where the reply is cut."""

from dataclasses import replace
from typing import Any

import pytest

from specchat.engine.protocol.events import Piece, Step
from specchat.engine.protocol.options import CallDelta, ToolCall
from specchat.serve.call_parts import CallParts, is_json
from specchat.serve.tools import ToolUse
from tests.fake_steps import steps

FIRST, SECOND = ToolCall("1", "look", '{"a": 1}'), ToolCall("2", "look", '{"b": 2}')
NO_TEXT = replace(steps("x", (0,))[0], pieces=())


def step(raw: str = "", text: str = "", deltas: Any = (), calls: tuple[ToolCall, ...] = ()) -> Step:
    """A step with the text `raw` of a call, arguments by ids, and calls that are complete."""
    parts = tuple(CallDelta(id, "look", arguments) for id, arguments in deltas)
    pieces = (Piece(text, "plain"),) if text else ()
    return replace(NO_TEXT, pieces=pieces, call_pieces=(Piece(raw, "plain"),), call_deltas=parts, tool_calls=calls)


BEGUN = step("<1", deltas=[("1", '{"a"')])


@pytest.mark.parametrize(
    ("written", "calls", "text"),
    [
        ([BEGUN], (replace(FIRST, arguments='{"a"'),), ""),
        ([BEGUN, step(text="<1 is no call")], (), ""),
        ([BEGUN, step(text="<1 is no call"), step("<2>", calls=(SECOND,))], (SECOND,), ""),
        ([BEGUN, step(">", deltas=[("1", ":1}")], calls=(FIRST,))], (FIRST,), ""),
        ([step("<1>", calls=(FIRST,))], (FIRST,), ""),
        ([step("<1>", calls=(FIRST,)), step("<2")], (FIRST,), "<2"),
        (
            [BEGUN, step("><2", deltas=[("1", ":1}"), ("2", '{"b"')], calls=(FIRST,))],
            (FIRST, replace(SECOND, arguments='{"b"')),
            "",
        ),
    ],
    ids=["cut", "unreadable", "after one that is", "complete in parts", "complete at once", "a second cut", "both"],
)
def test_a_cut_reply_has_the_calls_so_far(written: list[Step], calls: tuple[ToolCall, ...], text: str) -> None:
    parts = CallParts(ToolUse())
    for one in written:
        list(parts.of(one))
    assert parts.calls(whole=False) == (calls, text)


def test_a_call_that_another_one_follows_in_its_step_is_whole() -> None:
    parts = CallParts(ToolUse())
    for one in (BEGUN, step("><2", deltas=[("1", ":1}"), ("2", '{"b"')], calls=(FIRST,))):
        list(parts.of(one))
    calls, text = parts.calls(whole=True)
    assert (calls, text.endswith("<2")) == ((FIRST,), True)


def test_of_a_second_call_that_is_not_wanted_nothing_is_left() -> None:
    parts = CallParts(ToolUse(parallel=False))
    assert [part.id for part in parts.of(step("<1>", calls=(FIRST,)))] == ["1"]
    assert not list(parts.of(step("<2", deltas=[("2", '{"b"')])))
    assert parts.calls(whole=False) == ((FIRST,), "")


def test_nested_beyond_measure_is_no_json() -> None:
    assert not is_json("[" * 100_000)
