"""The calls of a streamed reply: a part of their arguments at a time, or the whole of one that cannot be followed."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from specchat.engine.protocol.events import Step
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
        self._calls: dict[str, ToolCall] = {}
        """Calls that the client gets, by their names, with the arguments so far."""
        self._open = ""
        """The name of the call that is being written, where its arguments come in parts."""
        self._raw = ""
        """The text of that call, its marks included."""

    def of(self, step: Step) -> Iterator[CallPart]:
        """The parts that a step adds."""
        if self._raw and any(piece.text for piece in step.pieces if not piece.reasoning):
            self._calls.pop(self._open, None)  # it cannot be read, and came back as text
            self._raw = self._open = ""
        self._raw += "".join(piece.text for piece in step.call_pieces)
        for delta in step.call_deltas:
            self._open = delta.id
            yield from self._part(delta.id, delta.name, delta.arguments)
        for call in step.tool_calls:
            if call.id not in self._numbers:
                yield from self._part(call.id, call.name, call.arguments)
            if call.id in self._calls:
                self._calls[call.id] = call
            if self._open in ("", call.id):
                self._raw = self._open = ""

    def calls(self, *, whole: bool) -> tuple[tuple[ToolCall, ...], str]:
        """The calls of a reply that was cut, and the text of its last one if that is not among them.

        That has a part of its arguments; with `whole` it counts only if they are complete.
        """
        finished, last = tuple(self._calls.values()), self._calls.get(self._open)
        if last is None:
            return finished, self._raw if self._use.parallel or not finished else ""
        return (finished[:-1], self._raw) if whole and not is_json(last.arguments) else (finished, "")

    def _part(self, id: str, name: str, arguments: str) -> Iterator[CallPart]:
        begins = id not in self._numbers
        number = self._numbers.setdefault(id, len(self._numbers))
        if self._use.parallel or not number:
            before = self._calls.get(id)
            self._calls[id] = ToolCall(id, name, (before.arguments if before else "") + arguments)
            yield CallPart(number, id, name, arguments, begins)


def is_json(text: str) -> bool:
    """True for the text of a JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
