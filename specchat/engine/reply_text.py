"""Tokens of a reply to pieces of text: whole graphemes, each with its source, cut before a stop string."""

from collections.abc import Sequence
from dataclasses import replace

import regex

from specchat.engine.api import Piece
from specchat.engine.options import Span, Written
from specchat.engine.reply_spans import ReplySpans

_GRAPHEMES = regex.compile(r"\X")


Segment = tuple[str, str, bool]
"""Text, the source of its last token, and whether it is reasoning."""


class ReplyText:
    """Collects text and hands it out once nothing that may follow can change it.

    Held back are incomplete characters, a last grapheme that is not ASCII (a mark may still join it), and text that
    may turn out to begin a stop string, which never lies in reasoning and answer both.
    """

    def __init__(self, spans: ReplySpans, stop: tuple[str, ...]) -> None:
        self._spans = spans
        self._stop = tuple(s for s in stop if s)
        self._ready: list[Piece] = []
        """Pieces that are not held back."""
        self._held: list[Segment] = []
        self._text = ""
        """All of what is held."""
        self._known = 0
        """Characters at the front of what is held that were there before this reply went on."""
        self.taken_back = 0
        """Characters at the end of what was there before that are part of a stop string."""
        self.turned = False
        """Whether what was handed out as an answer turned out to be reasoning."""
        self._stopped = False
        self._last_source = "plain"
        self._handed: list[Span] = []

    @property
    def written(self) -> Written:
        """Everything handed out so far."""
        return Written.of(self._handed)

    @property
    def text(self) -> str:
        """The text of all that was handed out."""
        return self.written.text

    @property
    def thinking(self) -> bool:
        """Whether reasoning is being written."""
        return self._spans.thinking

    def go_on(self, begun: Written, tokens: Sequence[int]) -> None:
        """Go on after a reply that says what was `begun`, in `tokens` if they are known."""
        for token in tokens:
            self._spans.push(token)
        self.turned = self._spans.turned
        for text, reasoning in begun.spans[-1:]:
            self._known = self._may_become_stop(text)
            self._text = text[len(text) - self._known :]
            self._held = [(self._text, self._last_source, reasoning)] if self._text else []

    def push(self, token: int, source: str) -> bool:
        """Add a token; True when it completes a stop string: the text before it is all there will be."""
        self._last_source = source
        spans = self._spans.push(token)
        if self._spans.turned and not self.turned:
            spans = [(text, True) for text, _ in spans]
            self._turn()
        return self._add(spans, source)

    def take(self) -> tuple[Piece, ...]:
        """The pieces that can be shown now."""
        held = self._text
        safe = len(held) - self._may_become_stop(held)
        if safe and not held[safe - 1].isascii():
            safe = [match.start() for match in _GRAPHEMES.finditer(held[:safe])][-1]
        return self._hand_out(safe)

    def finish(self, *, complete: bool = True) -> tuple[Piece, ...]:
        """All that is left at the end of the reply; the bytes of a character cut short are left out.

        `complete` says that the reply was not cut by a limit or by its user.
        """
        if not self._stopped:
            self._add(self._spans.flush(complete=complete), self._last_source)
        return self._hand_out(len(self._text))

    def _add(self, spans: list[Span], source: str) -> bool:
        for text, reasoning in spans:
            if self._held and self._held[-1][2] != reasoning:
                self._ready += self._pieces(len(self._text))
            self._held.append((text, source, reasoning))
            self._text += text
            new = (self._text.find(s, max(0, self._known - len(s) + 1)) for s in self._stop)
            if found := [at for at in new if at >= 0]:
                self.taken_back = max(0, self._known - min(found))
                self._known = min(self._known, *found)
                self._held, self._text = _head(self._held, min(found)), self._text[: min(found)]
                self._stopped = True
                return True
        return False

    def _turn(self) -> None:
        """Make reasoning of all that came before."""
        self.turned = True
        self._ready = [replace(piece, reasoning=True) for piece in self._ready]
        self._held = [(text, source, True) for text, source, _ in self._held]
        self._handed = [(text, True) for text, _ in self._handed]

    def _may_become_stop(self, held: str) -> int:
        """Length of the longest end of `held` with which a stop string begins."""
        return max(
            (n for s in self._stop for n in range(1, min(len(s), len(held) + 1)) if held.endswith(s[:n])), default=0
        )

    def _hand_out(self, length: int) -> tuple[Piece, ...]:
        """The pieces that are ready, and the first `length` characters of what is held."""
        ready, self._ready = [*self._ready, *self._pieces(length)], []
        return tuple(ready)

    def _pieces(self, length: int) -> tuple[Piece, ...]:
        """Take the first `length` characters of what is held, which is reasoning or answer as a whole."""
        held, head = self._text, self._held
        text, self._text = held[:length], held[length:]
        if self._text:
            head, self._held = _head(head, length), _tail(head, length)
        else:
            self._held = []
        known, self._known = min(length, self._known), max(0, self._known - length)
        head, text = _tail(head, known), text[known:]
        reasoning = bool(head) and head[0][2]
        if text:
            self._handed.append((text, reasoning))
        if not held.isascii():
            sources = [source for part, source, _ in head for _ in part]
            # A grapheme that several tokens made counts as the last one's.
            head = [(m.group(), sources[m.end() - 1], reasoning) for m in _GRAPHEMES.finditer(text)]
        return _merge(head)


def _head(segments: list[Segment], length: int) -> list[Segment]:
    head = []
    for text, source, reasoning in segments:
        if length <= 0:
            break
        head.append((text[:length], source, reasoning))
        length -= len(text)
    return head


def _tail(segments: list[Segment], length: int) -> list[Segment]:
    tail = []
    for text, source, reasoning in segments:
        if length < len(text):
            tail.append((text[length:], source, reasoning))
        length = max(0, length - len(text))
    return tail


def _merge(segments: list[Segment]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for text, source, reasoning in segments:
        if pieces and (pieces[-1].source, pieces[-1].reasoning) == (source, reasoning):
            pieces[-1] = Piece(pieces[-1].text + text, source, reasoning)
        elif text:
            pieces.append(Piece(text, source, reasoning))
    return tuple(pieces)
