"""The calls of a reply at its end, and what is left of them where it was cut."""

from dataclasses import replace

import pytest

from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import CallDelta, CutCalls, ToolCall, Written
from specchat.engine.protocol.stats import Stats
from specchat.serve.call_parts import CallParts, calls_at_end, is_json
from specchat.serve.tools import ToolUse
from tests.fake_steps import steps

FIRST, SECOND = ToolCall("1", "look", '{"a": 1}'), ToolCall("2", "look", '{"b": 2}')
BEGUN = replace(SECOND, arguments='{"b"')


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize(
    ("made", "cut", "parts", "whole"),
    [
        ((FIRST, SECOND), CutCalls(), ((FIRST, SECOND), ""), ((FIRST, SECOND), "")),
        ((), CutCalls((), BEGUN, "<2"), ((BEGUN,), ""), ((), "<2")),
        ((), CutCalls((), SECOND, "<2"), ((SECOND,), ""), ((SECOND,), "")),
        ((), CutCalls((), None, "<2"), ((), "<2"), ((), "<2")),
        ((FIRST,), CutCalls((), BEGUN, "<2"), ((FIRST, BEGUN), ""), ((FIRST,), "<2")),
        ((), CutCalls((FIRST,), BEGUN, "<2"), ((FIRST, BEGUN), ""), ((FIRST,), "<2")),
        ((), CutCalls((FIRST,), None, "<2"), ((FIRST,), "<2"), ((FIRST,), "<2")),
    ],
    ids=["none", "begun", "all but the mark", "not followed", "second", "second of a list", "second of it by name"],
)
def test_a_cut_reply_has_the_calls_so_far(
    made: tuple[ToolCall, ...],
    cut: CutCalls,
    parts: tuple[tuple[ToolCall, ...], str],
    whole: tuple[tuple[ToolCall, ...], str],
    parallel: bool,
) -> None:
    """Where one call is wanted, nothing is left of a second one."""
    event = replace(Finished.of(1, "length", Written(tool_calls=made), (), Stats()), cut_calls=cut)
    for calls, text in (parts, whole):
        expected = (calls, text) if parallel or FIRST not in calls else ((FIRST,), "")
        assert calls_at_end(event, ToolUse(parallel=parallel), whole=(calls, text) == whole) == expected


def test_of_a_second_call_that_is_not_wanted_nothing_is_told() -> None:
    step = replace(steps("x", (0,))[0], tool_calls=(FIRST,), call_deltas=(CallDelta("2", "look", '{"b"'),))
    assert [part.id for part in CallParts(ToolUse()).of(step)] == ["2", "1"]
    assert [part.id for part in CallParts(ToolUse(parallel=False)).of(step)] == ["2"]


def test_nested_beyond_measure_is_no_json() -> None:
    assert not is_json("[" * 100_000)
