"""The calls of a streamed reply: a part of their arguments at a time, or the whole of one that cannot be followed."""

from collections.abc import Iterator
from typing import NamedTuple

from specchat.engine.events import Step
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
