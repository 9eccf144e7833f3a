"""Tokens of a reply to spans of text: reasoning, or answer. Marks between them are no text."""

from collections.abc import Iterable
from typing import Literal

from specchat.engine.model.chat_format import ChatFormat
from specchat.engine.model.marks import REASONING_CHANNELS, ReplyMarks
from specchat.engine.model.tokenizer import TextStream
from specchat.engine.options import Span

ENDS = "\n.!?…"
"""Characters after which a mark that closes what nothing opened is one, and no talk about it."""
LONGEST_HEADER = 200
"""Characters of a part's header; what is longer is an answer."""

Begun = Literal["", "thinking", "answer"]


class ReplySpans:
    """Takes tokens one by one and gives the text that is certain.

    Reasoning stands at the start of a reply or after other reasoning; marks that are special tokens count anywhere. A
    mark that is a token of the vocabulary is that token alone, and spelt otherwise it is text.
    """

    def __init__(self, stream: TextStream, marks: ReplyMarks, chat: ChatFormat, begun: Begun = "") -> None:
        """`begun` is the part of the reply in which the prompt ends, where that says more than the template does."""
        self._stream = stream
        self._marks = marks
        self._closings = {pair.opening: pair.closing for pair in marks.marks}
        tokens = set(marks.tokens.values())
        self._spelt = [pair for pair in marks.marks if pair.opening not in tokens]
        self._state = "start"
        self._closing = ""
        self._held = ""
        self._thought = False
        """Whether the reasoning has any text yet."""
        self._unmarked = not begun and chat.opened is None and marks.channels is None
        """Whether no mark came yet, so that a closing one makes reasoning of all before it."""
        self._last = ""
        """The last character of the answer."""
        self.turned = False
        """Whether what was an answer turned out to be reasoning, which nothing had opened."""
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
        """Whether reasoning is being written."""
        return self._state == "thinking"

    def push(self, token: int) -> list[Span]:
        """The text that `token` completes, in order."""
        mark = self._marks.tokens.get(token)
        if mark is not None and self._means(mark):
            before = self._said(self._stream.flush())
            return [*before, *self._take(mark)]
        text = self._stream.push(token)
        return self._said(text) if text else []

    def flush(self, *, complete: bool) -> list[Span]:
        """What was held back, at the end of the reply.

        Of one that was cut, tokens that end inside a character and the beginning of a mark are left out: what goes on
        after it brings them.
        """
        if not complete:
            return []
        spans = self._said(self._stream.flush())
        held, self._held = self._held, ""
        if held.strip():
            spans.append((held, self.thinking))
        return spans

    def _means(self, mark: str) -> bool:
        """Whether a token that is a mark has a meaning where the reply is now."""
        channels = self._marks.channels
        if channels is not None and mark in (channels.start, channels.channel, channels.content, channels.end):
            return True
        if self.thinking:
            return mark == self._closing or (mark in self._closings and not self._thought)
        if self._unmarked and mark in self._closings.values():
            return mark in self._marks.special or self._last in ENDS
        return mark in self._closings and (self._state == "start" or mark in self._marks.special)

    def _take(self, mark: str) -> list[Span]:
        """Go on after a mark; what was held back for it."""
        held, self._held = self._held, ""
        channels = self._marks.channels
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
            self._state = "header"
        elif mark == channels.content:
            self._begin_part(held)
        else:
            self._state = "answer"
        return kept

    def _begin_part(self, header: str) -> None:
        words = REASONING_CHANNELS & set(header.split())
        self._thought, self._state, self._closing = False, "thinking" if words else "answer", ""

    def _think(self, closing: str) -> None:
        self._thought, self._state, self._closing = False, "thinking", closing

    def _said(self, text: str) -> list[Span]:
        if not text:
            return []
        text, self._held = self._held + text, ""
        if self._state == "start":
            return self._starting(text)
        if self._state == "header":
            return self._heading(text)
        if self.thinking:
            return self._reasoning(text)
        self._last = text[-1]
        return [(text, False)]

    def _starting(self, text: str) -> list[Span]:
        begun = text.lstrip()
        for pair in self._spelt:
            if begun.startswith(pair.opening):
                self._think(pair.closing)
                return self._said(begun.removeprefix(pair.opening))
        if not begun or any(pair.opening.startswith(begun) for pair in self._spelt):
            self._held = text
            return []
        self._state, self._last = "answer", text[-1]
        return [(text, False)]

    def _heading(self, text: str) -> list[Span]:
        channels = self._marks.channels
        content = channels.content if channels else ""
        if content and content not in self._marks.tokens.values() and content in text:
            header, _, rest = text.partition(content)
            self._begin_part(header)
            return self._said(rest)
        if len(text) > LONGEST_HEADER:
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
                return [*self._thoughts(before), *self._said(after)]
            end = next((n for n in range(len(closing) - 1, 0, -1) if text.endswith(closing[:n])), 0)
            text, self._held = text[: len(text) - end], text[len(text) - end :]
        return self._thoughts(text)

    def _thoughts(self, text: str) -> list[Span]:
        self._thought = self._thought or bool(text.strip())
        return [(text, True)] if text else []


def read(spans: ReplySpans, tokens: Iterable[int]) -> list[Span]:
    """The text of a reply's tokens."""
    found: list[Span] = []
    for token in tokens:
        before = spans.turned
        found += spans.push(token)
        if spans.turned != before:
            found = [(text, True) for text, _ in found]
    return found
