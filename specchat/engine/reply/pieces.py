"""Turns a reply's tokens into pieces of whole graphemes with their sources, and cuts at stop strings."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import regex

from specchat.engine.protocol.events import Piece
from specchat.engine.protocol.options import CallDelta, CutCalls, Span, ToolCall, Written, all_reasoning
from specchat.engine.text.marks import begun_mark
from specchat.engine.text.spans import ReplySpans

_GRAPHEMES = regex.compile(r"\X")


class StepCalls(NamedTuple):
    """Calls of a step: pieces of their text as it is written, complete calls, and parts of arguments."""

    pieces: tuple[Piece, ...] = ()
    complete: tuple[ToolCall, ...] = ()
    deltas: tuple[CallDelta, ...] = ()


class ReplyText:
    """Collects text, and releases it once later tokens cannot change it.

    It holds back incomplete characters, a last grapheme that is not ASCII (a combining mark may follow), and a possible
    start of a stop string. A stop string never spans reasoning and answer.
    """

    def __init__(self, spans: ReplySpans, stop: tuple[str, ...]) -> None:
        self._spans = spans
        self._stop = tuple(s for s in stop if s)
        self._ready: list[Piece] = []
        """Pieces to release."""
        self._held: list[Piece] = []
        self._known = 0
        """Characters at the front of the held text that precede this continuation."""
        self.taken_back = 0
        """Characters at the end of the text before that belong to a stop string."""
        self.stopped_by = ""
        """The stop string that ended the reply."""
        self.tokens = self.reasoning_tokens = 0
        """Tokens pushed, and those of reasoning with its marks."""
        self._last = Piece("", "plain")
        """Source and position of the last token."""
        self._released: list[Span] = []
        self._calls = StepCalls()

    @property
    def written(self) -> Written:
        """All released text, and all calls."""
        return replace(Written.of(self._released), tool_calls=self._spans.calls)

    @property
    def unreadable_calls(self) -> int:
        """Number of calls that could not be read, and that are text of the answer."""
        return self._spans.unreadable_calls

    @property
    def cut_calls(self) -> CutCalls:
        """Calls that are being written; none behind a stop string."""
        return CutCalls() if self.stopped_by else self._spans.cut_calls

    @property
    def text(self) -> str:
        """All released text as a string."""
        return self.written.text

    @property
    def turned(self) -> bool:
        """True once released answer text turned out to be reasoning."""
        return self._spans.turned

    @property
    def thinking(self) -> bool:
        """True while the reply is reasoning."""
        return self._spans.thinking

    def resume(self, begun: Written, tokens: Sequence[int]) -> None:
        """Continue a reply that was `begun`, with its `tokens` if they are known."""
        for token in tokens:
            self._spans.push(token)
        self._spans.called()
        for text, reasoning in begun.spans[-1:]:
            self._known = begun_mark(text, self._stop)
            self._held = [Piece(text[len(text) - self._known :], "plain", reasoning)] if self._known else []

    def push(self, token: int, source: str, position: int | None = None) -> bool:
        """Add the token at `position` of a step; True if it completes a stop string, which ends the text before it."""
        self._last = Piece("", source, position=position)
        thinking, turned = self.thinking, self.turned
        spans = self._spans.push(token)
        self.tokens += 1
        self.reasoning_tokens += thinking or self.thinking
        if self.turned != turned:
            self.reasoning_tokens = self.tokens
            spans = all_reasoning(spans)
            self._ready = [replace(piece, reasoning=True) for piece in self._ready]
            self._held = [replace(piece, reasoning=True) for piece in self._held]
            self._released = all_reasoning(self._released)
        self._call()
        return self._add(spans)

    def take_calls(self) -> StepCalls:
        """Calls since the last time."""
        taken, self._calls = self._calls, StepCalls()
        return taken._replace(pieces=_merge(taken.pieces))

    def _call(self) -> None:
        (text, calls, deltas), before = self._spans.called(), self._calls
        pieces = (*before.pieces, replace(self._last, text=text)) if text else before.pieces
        self._calls = StepCalls(pieces, before.complete + calls, before.deltas + deltas)

    def take(self) -> tuple[Piece, ...]:
        """Release the pieces that are final."""
        held = self._text
        safe = len(held) - begun_mark(held, self._stop)
        if safe and not held[safe - 1].isascii():
            safe = [match.start() for match in _GRAPHEMES.finditer(held[:safe])][-1]
        released = self._release(safe)
        self._held = [replace(piece, position=None) for piece in self._held]  # the next step's tokens are others
        return released

    def finish(self, *, complete: bool = True) -> tuple[Piece, ...]:
        """Release the rest at the end of the reply, without incomplete characters.

        `complete` is False if a limit or the user cut the reply.
        """
        if not self.stopped_by:
            self._add(self._spans.flush(complete=complete))
            self._call()
        return self._release(len(self._text))

    @property
    def _text(self) -> str:
        """Text of all held pieces."""
        return "".join(piece.text for piece in self._held)

    def _add(self, spans: list[Span]) -> bool:
        for text, reasoning in spans:
            if self._held and self._held[-1].reasoning != reasoning:
                self._ready += self._pieces(len(self._text))
            self._held.append(replace(self._last, text=text, reasoning=reasoning))
            held = self._text
            new = ((held.find(s, max(0, self._known - len(s) + 1)), s) for s in self._stop)
            if found := [(at, stop) for at, stop in new if at >= 0]:
                first, self.stopped_by = min(found)
                self.taken_back = max(0, self._known - first)
                self._known = min(self._known, first)
                self._held = _head(self._held, first)
                return True
        return False

    def _release(self, length: int) -> tuple[Piece, ...]:
        """Release the ready pieces, and the first `length` characters of the held text."""
        ready, self._ready = [*self._ready, *self._pieces(length)], []
        return tuple(ready)

    def _pieces(self, length: int) -> tuple[Piece, ...]:
        """Take the first `length` characters of the held text, which is all reasoning or all answer."""
        held, head, self._held = self._text, _head(self._held, length), _tail(self._held, length)
        known, self._known = min(length, self._known), max(0, self._known - length)
        head, text = _tail(head, known), held[known:length]
        if text:
            self._released.append((text, head[0].reasoning))
        if not held.isascii():
            of = [piece for piece in head for _ in piece.text]
            # A grapheme of several tokens belongs to the last one.
            head = [replace(of[match.end() - 1], text=match.group()) for match in _GRAPHEMES.finditer(text)]
        return _merge(head)


def _head(pieces: list[Piece], length: int) -> list[Piece]:
    """The first `length` characters."""
    head = []
    for piece in pieces:
        if length <= 0:
            break
        head.append(piece if len(piece.text) <= length else replace(piece, text=piece.text[:length]))
        length -= len(piece.text)
    return head


def _tail(pieces: list[Piece], length: int) -> list[Piece]:
    """The characters from `length` on."""
    tail = []
    for piece in pieces:
        if length < len(piece.text):
            tail.append(piece if length == 0 else replace(piece, text=piece.text[length:]))
        length = max(0, length - len(piece.text))
    return tail


def _merge(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The pieces with text, neighbours of one token in one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and replace(merged[-1], text=piece.text) == piece:
            merged[-1] = replace(piece, text=merged[-1].text + piece.text)
        elif piece.text:
            merged.append(piece)
    return tuple(merged)
