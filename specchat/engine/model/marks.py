"""Marks around reasoning and channels, as chat models are published with them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Marks:
    """What a model writes before and after its reasoning."""

    opening: str
    closing: str


@dataclass(frozen=True)
class Channels:
    """A reply in parts, each with a header that names its channel.

    `start` begins a header, also the one that the prompt leaves open, and is empty where there is none. `channel`
    begins the channel's name, `content` ends the header, and `end` ends the part.
    """

    start: str
    channel: str
    content: str
    end: str


MARKS = (
    Marks("<think>", "</think>"),
    Marks("<thinking>", "</thinking>"),
    Marks("<thought>", "</thought>"),
    Marks("<reasoning>", "</reasoning>"),
    Marks("<seed:think>", "</seed:think>"),
    Marks("<|begin_of_thought|>", "<|end_of_thought|>"),
    Marks("<|START_THINKING|>", "<|END_THINKING|>"),
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),
    Marks("[THINK]", "[/THINK]"),
    Marks("◁think▷", "◁/think▷"),
)
SENTENCES = (
    Marks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    Marks("Here is my thought process:", "Here is my response:"),
)
"""Words that any model may say: they are marks where a template has them."""
CHANNELS = (
    Channels("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    Channels("", "<|channel>", "\n", "<channel|>"),
)
REASONING_CHANNELS = frozenset({"analysis", "thought", "thinking", "to=self"})
"""Words of a header whose part is reasoning."""
TOOL_MARKS = frozenset(
    {
        *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"),
        *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("<|tool_call|>", "<|tool_response|>", "<|python_tag|>", "<|tool_calls_section_begin|>"),
    }
)


@dataclass(frozen=True)
class ReplyMarks:
    """The marks in a model's replies. `tokens` are those that are one token, `special` the special ones' texts."""

    marks: tuple[Marks, ...]
    channels: Channels | None
    tokens: Mapping[int, str]
    special: frozenset[str]


def channels_of(tokens: Collection[str]) -> Channels | None:
    """The channel format that a vocabulary has the tokens for."""
    return next((c for c in CHANNELS if c.channel in tokens and c.end in tokens), None)


def begins_answer(opening: str) -> bool:
    """Whether a mark names what comes after it an answer."""
    return any(word in opening.lower() for word in ("answer", "response", "reply", "final", "output", "message"))


def closing_of(opening: str) -> str:
    """The mark that by its form closes another; empty where the form is none that is known."""
    for left, middle in (("<|", ""), ("<", "/"), ("[", "/"), ("◁", "/")):
        if opening.startswith(left) and middle:
            return left + middle + opening[len(left) :]
        if opening.startswith(left):
            for begin, end in (("START", "END"), ("begin", "end"), ("start", "end"), ("prefix", "suffix")):
                if begin in opening:
                    return opening.replace(begin, end)
            return ""
    return ""
