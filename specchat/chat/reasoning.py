"""A reply's reasoning: from the engine, or found by marks in texts without ranges, such as older chats."""

import re
from collections.abc import Iterator

from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import Span, Written
from specchat.engine.text.marks import MARKS, closes_unopened

FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)$")
"""The opening line of a fenced block of code, or its closing one."""


@dataclass(frozen=True)
class Thought:
    """Reasoning in `text[start:end]`, without its marks in `text[inner_start:inner_end]`."""

    start: int
    inner_start: int
    inner_end: int
    end: int


class Reasoning:
    """The reasoning in a reply that may still grow."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.thoughts: list[Thought] = []
        """Closed parts, in order."""
        self.thinking: Thought | None = None
        """The one being written; in a reply that ended, one that was cut off."""
        self.update()

    def update(self) -> None:
        """Take in the text that came since the last call."""
        ranges = self._reply.reasoning
        if ranges is None:
            self.thoughts, self.thinking = thoughts_in(self._reply.text)
            return
        thoughts = [Thought(start, start, end, end) for start, end in ranges]
        self.thinking = thoughts.pop() if self._reply.thinking and thoughts else None
        self.thoughts = thoughts

    @property
    def any(self) -> bool:
        """True if there is reasoning."""
        return bool(self.thoughts) or self.thinking is not None

    @property
    def answer(self) -> str:
        """The text that is no reasoning."""
        text, parts, at = self._reply.text, [], 0
        for thought in (*self.thoughts, *([self.thinking] if self.thinking else [])):
            parts.append(text[at : thought.start])
            at = thought.end
        answer = "".join([*parts, text[at:]])
        return answer.strip("\n") if self.any else answer


def thoughts_in(text: str) -> tuple[list[Thought], Thought | None]:
    """The reasoning in a whole text with marks, and one that is not closed.

    It stands at the start, or after other reasoning. Where the prompt opened it, a closing mark at the start of a line
    or the end of a sentence ends it.
    """
    thoughts: list[Thought] = []
    at = 0
    while True:
        begin = at + len(text[at:]) - len(text[at:].lstrip())
        marks = next((marks for marks in MARKS if text.startswith(marks.opening, begin)), None)
        if marks is None:
            break
        inner = begin + len(marks.opening)
        end = text.find(marks.closing, inner)
        if end < 0:
            return thoughts, Thought(begin, inner, len(text), len(text))
        at = end + len(marks.closing)
        thoughts.append(Thought(begin, inner, end, at))
    if not thoughts:
        thoughts = [Thought(0, 0, start, end) for start, end in _lone_closings(text)][:1]
    return thoughts, None


def without_marks(reply: Reply) -> Written:
    """Text of a reply for the model to go on with: marks in a text that came without ranges are no text."""
    if reply.reasoning is not None:
        return reply.written
    text, at = reply.raw, 0
    thoughts, thinking = thoughts_in(text)
    spans: list[Span] = []
    for thought in (*thoughts, *([thinking] if thinking else [])):
        spans += [(text[at : thought.start], False), (text[thought.inner_start : thought.inner_end], True)]
        at = thought.end
    return Written.of([*spans, (text[at:], False)], thinking=thinking is not None)


def marked(reply: Reply) -> str:
    """The whole text, its reasoning between tags, for readers that know no other sign of it."""
    written = reply.written
    if not written.reasoning:
        return written.text
    thoughts, answer = written.thoughts.strip("\n"), written.answer
    if not written.thinking:
        return f"<think>\n{thoughts}\n</think>\n\n{answer}"
    if not answer:
        return f"<think>\n{thoughts}"
    *earlier, (begin, end) = written.reasoning
    before = "".join(written.text[a:b] for a, b in earlier).strip("\n")
    closed = f"<think>\n{before}\n</think>\n\n" if before else ""
    last = written.text[begin:end].strip("\n")
    return f"{closed}{answer}\n\n<think>\n{last}"


def _lone_closings(text: str) -> Iterator[tuple[int, int]]:
    """Places of closing marks without an opening one, outside of code."""
    fence, at = "", 0
    for line in text.splitlines(keepends=True):
        if fence:
            if line.strip() and set(line.strip()) == {fence[0]} and len(line.strip()) >= len(fence):
                fence = ""
        elif opened := FENCE.match(line):
            fence = opened[2]
        else:
            for marks in MARKS:
                found = line.find(marks.closing)
                if found >= 0 and closes_unopened(line[:found]):
                    yield at + found, at + found + len(marks.closing)
        at += len(line)
