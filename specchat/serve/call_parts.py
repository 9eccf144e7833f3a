"""The calls of a streamed reply: a part of their arguments at a time, or the whole of one that cannot be followed."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import ToolCall
from specchat.serve.tools import ToolUse


class CallPart(NamedTuple):
    """Arguments of call `number`, in order; the first part `begins` it."""

    number: int
    id: str
    name: str
    arguments: str
    begins: bool


class CallParts:
    """Numbers the calls of one reply, and leaves out those that the client does not want."""

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self._numbers: dict[str, int] = {}

    def of(self, step: Step) -> Iterator[CallPart]:
        """The parts that a step adds."""
        for delta in step.call_deltas:
            yield from self._part(delta.id, delta.name, delta.arguments)
        for call in step.tool_calls:
            if call.id not in self._numbers:
                yield from self._part(call.id, call.name, call.arguments)

    def _part(self, id: str, name: str, arguments: str) -> Iterator[CallPart]:
        begins = id not in self._numbers
        number = self._numbers.setdefault(id, len(self._numbers))
        if self._use.parallel or not number:
            yield CallPart(number, id, name, arguments, begins)


def calls_at_end(event: Finished, use: ToolUse, *, whole: bool) -> tuple[tuple[ToolCall, ...], str]:
    """The calls of a reply, and the text of a last one that is not among them because the reply was cut.

    A call that was cut counts with a part of its arguments, or `whole` only if they are complete.
    """
    cut = event.cut_calls
    calls = (*event.tool_calls, *cut.before)
    if cut.last is not None and (not whole or is_json(cut.last.arguments)):
        return use.passed_on((*calls, cut.last)), ""
    return use.passed_on(calls), cut.text if use.parallel or not calls else ""


def is_json(text: str) -> bool:
    """True for the text of a JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
