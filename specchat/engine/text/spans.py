"""Splits a reply's tokens into spans of reasoning and answer, without the marks between them."""

from collections.abc import Iterable
from copy import copy
from typing import Literal

from specchat.engine.protocol.options import CutCalls, Span, ToolCall, all_reasoning
from specchat.engine.text.chat_format import ChatFormat
from specchat.engine.text.marks import REASONING_CHANNELS, ReplyMarks, begun_mark, closes_unopened
from specchat.engine.text.text_stream import TextStream
from specchat.engine.tool_calls.reader import CallProgress, CallReader

FUNCTION = "to=functions."
"""In the header of a part: the name of the function that it calls follows."""
MAX_HEADER_CHARS = 200
"""A longer header of a part counts as an answer."""

Begun = Literal["", "thinking", "answer"]
Place = Literal["start", "inside", "between", "answer"]
"""Places of a reply's next token: at the start of reasoning or an answer, inside reasoning or a header, between the
parts of a reply in channels, or in an answer."""


class ReplySpans:
    """Receives tokens one by one, and returns the text that is final.

    Reasoning stands at the start of a reply or after other reasoning; special tokens are marks anywhere. If a mark is a
    token of the vocabulary, only that token is the mark, and other spellings are text. Calls of tools are left out, if
    there is a reader of `calls`.
    """

    def __init__(
        self,
        stream: TextStream,
        marks: ReplyMarks,
        chat: ChatFormat,
        begun: Begun = "",
        calls: CallReader | None = None,
    ) -> None:
        """Start in the part `begun`, in which the prompt ends; "" leaves that to the template."""
        self._stream = stream
        self._calls = calls
        self._marks = marks
        self._closings = {pair.opening: pair.closing for pair in marks.marks}
        tokens = set(marks.tokens.values())
        self._spelt = [pair for pair in marks.marks if pair.opening not in tokens]
        self._state = "start"
        self._closing = ""
        self._held = ""
        self._thought = False
        """True once the reasoning has text."""
        self._unmarked = not begun and chat.opened is None and marks.channels is None
        """True before the first mark, when a closing one turns all text before it into reasoning."""
        self._last = ""
        """The last character of the answer that is no space."""
        self.turned = False
        """True once a closing mark turned the text before it into reasoning."""
        self.reasoned = begun == "thinking"
        """True once reasoning has begun."""
        self._ended = False
        """True after a part of a reply in channels."""
        self._recipient = "" if begun else chat.recipient
        """A line that may begin the reply, and is none of its text."""
        if begun == "answer":
            self._state = "answer"
        elif begun == "thinking":
            self._think("" if chat.channels else (chat.opened or chat.marks[0]).closing)
        elif chat.opened is not None:
            self._think(chat.opened.closing)
        elif chat.in_header:
            self._state = "header"

    @property
    def thinking(self) -> bool:
        """True while the reply is reasoning."""
        return self._state == "thinking"

    @property
    def place(self) -> Place:
        """Place of the next token."""
        if self._state in ("thinking", "header"):
            return "inside"
        if self._state == "answer" and not self._ended:
            return "answer"
        return "between" if self._ended and self._marks.channels and self._marks.channels.start else "start"

    @property
    def marks(self) -> frozenset[int]:
        """Tokens that are marks."""
        return frozenset(self._marks.tokens)

    @property
    def openings(self) -> frozenset[int]:
        """Tokens that may begin reasoning or a part at this place."""
        channels = self._marks.channels
        if self.place == "between":
            begin = {channels.start} if channels else set()
        elif self.reasoned:
            begin = set()
        else:
            begin = {*self._closings, *((channels.start, channels.channel) if channels else ())}
        return frozenset(token for token, mark in self._marks.tokens.items() if mark in begin)

    def copied(self) -> "ReplySpans":
        """A copy that goes on by itself."""
        made = copy(self)
        made._stream = self._stream.copied()
        return made

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls so far."""
        return tuple(self._calls.calls) if self._calls else ()

    @property
    def unreadable_calls(self) -> int:
        return self._calls.unreadable if self._calls else 0

    @property
    def cut_calls(self) -> CutCalls:
        """Calls that are being written."""
        return self._calls.cut_calls if self._calls else CutCalls()

    def called(self) -> CallProgress:
        """Calls since the last time."""
        return self._calls.take() if self._calls else CallProgress()

    def push(self, token: int) -> list[Span]:
        """Spans that `token` completes, in order."""
        mark = self._marks.calls.get(token)
        if mark is not None and self._calls is not None and self._calls_by(mark):
            before = self._without_calls(self._split(self._stream.flush()))
            if self._state != "answer":
                self._state, self._held = "answer", ""
            return [*before, *_answer(self._calls.mark(mark))]
        mark = self._marks.tokens.get(token)
        if mark is not None and self._means(mark):
            before = self._without_calls(self._split(self._stream.flush()))
            left = self._calls.leave() if self._calls is not None else ""
            return [*before, *_answer(left), *self._without_calls(self._take(mark))]
        text = self._stream.push(token)
        return self._without_calls(self._split(text)) if text else []

    def _calls_by(self, mark: str) -> bool:
        """True if a mark of calls has a meaning in the reply's current part."""
        assert self._calls is not None
        if self._calls.inside:
            return True
        return self._calls.opens(mark) and (not self.thinking or mark in self._marks.special)

    def _without_calls(self, spans: list[Span]) -> list[Span]:
        if self._calls is None:
            return spans
        told = [(text if reasoning else self._calls.feed(text), reasoning) for text, reasoning in spans]
        return [span for span in told if span[0]]

    def flush(self, *, complete: bool) -> list[Span]:
        """Spans held back, at the end of the reply.

        A cut reply keeps incomplete characters and marks back: its continuation brings them.
        """
        if not complete:
            if self._calls is not None:
                self._calls.finish(complete=False)
            return []
        spans = self._split(self._stream.flush())
        held, self._held = self._held, ""
        if held.strip():
            spans.append((held, self.thinking))
        rest = self._without_calls(spans)
        return [*rest, *_answer(self._calls.finish(complete=True))] if self._calls is not None else rest

    def _means(self, mark: str) -> bool:
        """True if a mark has a meaning in the reply's current part."""
        channels = self._marks.channels
        if self._calls is not None and self._calls.inside and channels is None:
            return False
        if channels is not None and mark in (channels.start, channels.channel, channels.content, channels.end):
            return True
        if self.thinking:
            return mark == self._closing or (mark in self._closings and not self._thought)
        if self._unmarked and mark in self._closings.values():
            return mark in self._marks.special or closes_unopened(self._last)
        return mark in self._closings and (self._state == "start" or mark in self._marks.special)

    def _take(self, mark: str) -> list[Span]:
        """Apply a mark, and return the spans held back before it."""
        held, self._held = self._held, ""
        channels = self._marks.channels
        self._ended = channels is not None and mark == channels.end
        kept = [(held, False)] if held.strip() and self._state != "header" else []
        unmarked, self._unmarked = self._unmarked, False
        if unmarked and mark not in self._closings:
            self._state, self.turned = "start", True
            return [(held, True)] if held else []
        if channels is None or mark not in (channels.start, channels.channel, channels.content, channels.end):
            if self.thinking and mark == self._closing:
                self._state = "start"
                return [(held, True)] if held else []
            self._think(self._closings[mark])
            return kept
        if mark in (channels.start, channels.channel):
            # A part may be addressed before its channel is named.
            self._held = f"{held} " if mark == channels.channel and self._state == "header" else ""
            self._state = "header"
        elif mark == channels.content:
            self._begin_part(held)
        else:
            self._state = "answer"
        return kept

    def _begin_part(self, header: str) -> None:
        named = header.split()
        words = REASONING_CHANNELS & set(named)
        to = next((word.removeprefix(FUNCTION) for word in named if word.startswith(FUNCTION)), "")
        if to and self._calls is not None:
            self._state = "answer"
            self._calls.address(to)
            return
        self._thought, self._state, self._closing = False, "thinking" if words else "answer", ""
        self.reasoned = self.reasoned or bool(words)

    def _think(self, closing: str) -> None:
        self._thought, self._state, self._closing, self.reasoned = False, "thinking", closing, True

    def _split(self, text: str) -> list[Span]:
        if not text:
            return []
        text, self._held = self._held + text, ""
        if self._state == "start":
            return self._starting(text)
        if self._state == "header":
            return self._heading(text)
        if self.thinking:
            return self._reasoning(text)
        return self._answering(text)

    def _starting(self, text: str) -> list[Span]:
        if self._recipient and len(text) < len(self._recipient) and self._recipient.startswith(text):
            self._held = text
            return []
        line, self._recipient = self._recipient, ""
        text = text.removeprefix(line)
        if not text:
            return []
        begun = text.lstrip()
        for pair in self._spelt:
            if begun.startswith(pair.opening):
                self._think(pair.closing)
                return self._split(begun.removeprefix(pair.opening))
        if not begun or any(pair.opening.startswith(begun) for pair in self._spelt):
            self._held = text
            return []
        self._state = "answer"
        return self._answering(text)

    def _answering(self, text: str) -> list[Span]:
        self._last = (self._last + text).rstrip(" \t")[-1:]
        return [(text, False)]

    def _heading(self, text: str) -> list[Span]:
        channels = self._marks.channels
        content = channels.content if channels else ""
        if content and content not in self._marks.tokens.values() and content in text:
            header, _, rest = text.partition(content)
            self._begin_part(header)
            return self._split(rest)
        if len(text) > MAX_HEADER_CHARS:
            self._state = "answer"
            return [(text, False)]
        self._held = text
        return []

    def _reasoning(self, text: str) -> list[Span]:
        closing = self._closing
        if closing and closing not in self._marks.tokens.values():
            before, found, after = text.partition(closing)
            if found:
                self._state = "start"
                return [*self._thoughts(before), *self._split(after)]
            end = begun_mark(text, (closing,))
            text, self._held = text[: len(text) - end], text[len(text) - end :]
        return self._thoughts(text)

    def _thoughts(self, text: str) -> list[Span]:
        self._thought = self._thought or bool(text.strip())
        return [(text, True)] if text else []


def _answer(text: str) -> list[Span]:
    return [(text, False)] if text else []


def read(spans: ReplySpans, tokens: Iterable[int]) -> list[Span]:
    """Spans of a reply's tokens."""
    found: list[Span] = []
    for token in tokens:
        before = spans.turned
        found += spans.push(token)
        if spans.turned != before:
            found = all_reasoning(found)
    return found
