"""Results of the tools that a reply called, as a chat keeps them."""

import json
from collections.abc import Iterator, Sequence

from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Message, ToolCall
from specchat.figures import duration

_SHORT = 200
"""Characters of arguments on one line."""


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer to a call.

    Attributes:
        failed: `content` is the reason why there is no answer.
        seconds: time that the tool took; 0 if unknown.
        server: the server that has the tool; empty if unknown.
        declined: the user did not allow the call.
    """

    call_id: str
    name: str
    content: str
    failed: bool = False
    seconds: float = 0.0
    server: str = ""
    declined: bool = False

    @property
    def message(self) -> Message:
        """The answer as the model gets it."""
        return Message("tool", self.content, tool_call_id=self.call_id, tool_name=self.name)


NOT_MADE = "This call was not made."
"""The content for a call that a chat went on without."""


def unanswered(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolCall]:
    """The calls without a result."""
    answered = {result.call_id for result in results}
    return [call for call in calls if call.id not in answered]


def outcome(result: ToolResult | None) -> str:
    """`ok · 0.31 s`, `failed`, `declined`."""
    if result is None:
        return "no result yet"
    if result.declined:
        return "declined"
    seconds = f" · {duration(1e3 * result.seconds)}" if result.seconds >= 0.05 else ""
    return f"{'failed' if result.failed else 'ok'}{seconds}"


def short_arguments(arguments: str) -> str:
    """`path: notes.txt, lines: 3` on one line; the text itself where it is no JSON object."""
    read = _read(arguments)
    if read is None:
        return one_line(arguments, _SHORT)
    return one_line(", ".join(f"{name}: {_value(value)}" for name, value in read.items()), _SHORT)


def argument_lines(arguments: str) -> Iterator[str]:
    """One argument a line; a text of several lines below its name, each of its lines marked."""
    read = _read(arguments)
    if read is None:
        yield clean(arguments)
        return
    for name, value in read.items():
        shown = one_line(name, 100)
        if isinstance(value, str) and "\n" in value:
            yield f"{shown}:"
            yield from (f"  │ {line}" for line in clean(value).split("\n"))
        else:
            yield f"{shown}: {clean(_value(value)) if isinstance(value, str) else _value(value)}"


def _read(arguments: str) -> dict[str, object] | None:
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
