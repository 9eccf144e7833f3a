"""What tools answered to the calls of a reply, as a chat keeps it."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.options import Message, ToolCall


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
