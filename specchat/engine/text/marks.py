"""Marks of reasoning and channels in the replies of published chat models."""

from collections.abc import Collection, Iterable, Mapping

from specchat.dataclass import dataclass


@dataclass(frozen=True)
class Marks:
    """Text before and after a model's reasoning."""

    opening: str
    closing: str


@dataclass(frozen=True)
class Channels:
    """A reply in parts, each with a header that names its channel.

    `start` begins a header, also the one that the prompt leaves open; it may be empty. `channel` begins the channel's
    name, `content` ends the header, and `end` ends the part.
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
"""Plain sentences: they are marks only where a template has them."""
CHANNELS = (
    Channels("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    Channels("", "<|channel>", "\n", "<channel|>"),
)
REASONING_CHANNELS = frozenset({"analysis", "thought", "thinking", "to=self"})
"""Words in the header of a part with reasoning."""
TOOL_MARKS = frozenset(
    {
        *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"),
        *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
        *("<|tool_call|>", "<|tool_response|>", "<|python_tag|>", "<|tool_calls_section_begin|>"),
    }
)


@dataclass(frozen=True)
class ReplyMarks:
    """Marks in a model's replies.

    Attributes:
        tokens: those of one token; `calls` are those of tool calls.
        special: texts of the special ones.
    """

    marks: tuple[Marks, ...]
    channels: Channels | None
    tokens: Mapping[int, str]
    special: frozenset[str]
    calls: Mapping[int, str]


def channels_of(tokens: Collection[str]) -> Channels | None:
    """The channel format that a vocabulary has the tokens for."""
    return next((c for c in CHANNELS if c.channel in tokens and c.end in tokens), None)


def begins_answer(opening: str) -> bool:
    """True where a mark calls the text after it an answer."""
    return any(word in opening.lower() for word in ("answer", "response", "reply", "final", "output", "message"))


def closing_of(opening: str) -> str:
    """The closing mark by the form of `opening`; empty where the form is unknown."""
    for left, middle in (("<|", ""), ("<", "/"), ("[", "/"), ("◁", "/")):
        if opening.startswith(left) and middle:
            return left + middle + opening[len(left) :]
        if opening.startswith(left):
            for begin, end in (("START", "END"), ("begin", "end"), ("start", "end"), ("prefix", "suffix")):
                if begin in opening:
                    return opening.replace(begin, end)
            return ""
    return ""


def begun_mark(text: str, marks: Iterable[str]) -> int:
    """Characters at the end of `text` with which one of `marks` may begin; the most there are."""
    ends = (n for mark in marks for n in range(1, min(len(mark), len(text) + 1)) if text.endswith(mark[:n]))
    return max(ends, default=0)


def closes_unopened(before: str) -> bool:
    """True if a closing mark that none opened makes reasoning of the text `before` it; within a sentence it is text."""
    return before.rstrip(" \t")[-1:] in ("", *"\n.!?…")
