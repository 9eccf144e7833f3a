"""The format of a chat template: its inputs, and its model's output."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specchat.engine.text.marks import MARKS, Channels, Marks
from specchat.engine.tool_calls.form import ToolFormat

FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Names of the field for earlier reasoning."""
PART = "thinking part"
"""Earlier reasoning as a part of the content, for Mistral's templates."""
ARGUMENTS = ("enable_thinking", "thinking", "reasoning_effort", "reasoning_strength", "thinking_budget", "reasoning")
"""Template arguments that control reasoning."""

Content = Literal["text", "parts", "assignable"]


@dataclass(frozen=True)
class ChatFormat:
    """The format of a chat template. Marks and ends are texts as the template writes them.

    Attributes:
        content: the form in which a message's text is given. "assignable" messages are namespaces, for templates that
            set their fields.
        arguments: given at each rendering, where the template fails without.
        headed: a system message must come first, if need be an empty one.
        system: the template has a system role; without it the system prompt precedes the first user message.
        system_later: the template takes a system message after others, too; without it that joins a user's message.
        alternating: the template refuses two messages of the user in a row, so that neighbours of one role are joined.
        reasoning: the field of `FIELDS`, or PART, that takes earlier reasoning; empty where it is left out.
        turn_end: the token behind what an assistant said; empty where it is no token.
        stop: the text behind what an assistant said, where that is no token.
        marks: around reasoning, those that the template shows first.
        opened: the marks whose opening ends the prompt: a reply begins with reasoning.
        channels: the parts that a reply is written in.
        in_header: the prompt ends in the header of a part.
        recipient: the line that names an answer's recipient and that the template writes before it; empty: none.
        options: those of `ARGUMENTS` that the template takes.
        choices: those of `template_choices` whose value changes the prompt, with the values that the template tells
            apart.
        tools: the way in which the template takes tools; None where it shows none, or no form of calls.
        drops: parts of a chat that the prompt lacks, in words.
    """

    content: Content = "text"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    headed: bool = False
    system: bool = True
    reasoning: str = ""
    turn_end: str = ""
    stop: str = ""
    marks: tuple[Marks, ...] = MARKS
    opened: Marks | None = None
    channels: Channels | None = None
    in_header: bool = False
    recipient: str = ""
    options: tuple[str, ...] = ()
    choices: tuple[tuple[str, tuple[str | bool, ...]], ...] = ()
    tools: ToolFormat | None = None
    drops: tuple[str, ...] = ()
    system_later: bool = True
    alternating: bool = False

    @property
    def around(self) -> "Around":
        """The texts between the parts of a reply, as its model writes them."""
        if (c := self.channels) is not None:
            thinking = Around(f"{c.channel}thought{c.content}", c.end, "")
            if not c.start:
                return thinking
            final = f"{c.channel}final{c.content}"
            return Around(f"{c.channel}analysis{c.content}", f"{c.end}{c.start}assistant{final}", final)
        marks = self.opened or self.marks[0]
        # The user's words begin an answer: reasoning that the prompt opened is over.
        return Around(marks.opening, marks.closing, f"\n{marks.closing}\n\n" if self.opened else self.recipient)


@dataclass(frozen=True)
class Around:
    """Marks as text: those of reasoning, and what comes before an answer without any."""

    opening: str
    closing: str
    before_answer: str
