"""Tokens of a reply to pieces of text: whole graphemes, each with its source, cut before a stop string."""

import regex

from specchat.engine.api import Piece
from specchat.engine.model.tokenizer import TextStream

_GRAPHEMES = regex.compile(r"\X")


class ReplyText:
    """Collects text and hands it out once nothing that may follow can change it.

    Held back are incomplete characters, a last grapheme that is not ASCII (a mark may still join it), and text that
    may turn out to begin a stop string.
    """

    def __init__(self, stream: TextStream, stop: tuple[str, ...]) -> None:
        self._stream = stream
        self._stop = tuple(s for s in stop if s)
        self._held: list[tuple[str, str]] = []
        self._text = ""
        """All of what is held."""
        self._stopped = False
        self._last_source = "plain"
        self.text = ""
        """Everything handed out so far."""

    def push(self, token: int, source: str) -> bool:
        """Add a token; True when it completes a stop string: the text before it is all there will be."""
        text = self._stream.push(token)
        self._last_source = source
        return bool(text) and self._add(text, source)

    def take(self) -> tuple[Piece, ...]:
        """The pieces that can be shown now."""
        held = self._text
        safe = len(held) - self._may_become_stop(held)
        if safe and not held[safe - 1].isascii():
            safe = [match.start() for match in _GRAPHEMES.finditer(held[:safe])][-1]
        return self._hand_out(safe)

    def finish(self) -> tuple[Piece, ...]:
        """All that is left at the end of the reply; a character cut short shows as U+FFFD."""
        if not self._stopped and (tail := self._stream.flush()):
            self._add(tail, self._last_source)
        return self._hand_out(len(self._text))

    def _add(self, text: str, source: str) -> bool:
        self._held.append((text, source))
        self._text += text
        found = [at for at in (self._text.find(s) for s in self._stop) if at >= 0]
        if not found:
            return False
        self._held, self._text = _head(self._held, min(found)), self._text[: min(found)]
        self._stopped = True
        return True

    def _may_become_stop(self, held: str) -> int:
        """Length of the longest end of `held` with which a stop string begins."""
        return max(
            (n for s in self._stop for n in range(1, min(len(s), len(held) + 1)) if held.endswith(s[:n])), default=0
        )

    def _hand_out(self, length: int) -> tuple[Piece, ...]:
        held, head = self._text, self._held
        text, self._text = held[:length], held[length:]
        if self._text:
            head, self._held = _head(head, length), _tail(head, length)
        else:
            self._held = []
        self.text += text
        if held.isascii():
            return _merge(head)
        sources = [source for part, source in head for _ in part]
        # A grapheme that several tokens made counts as the last one's.
        return _merge([(m.group(), sources[m.end() - 1]) for m in _GRAPHEMES.finditer(text)])


def _head(segments: list[tuple[str, str]], length: int) -> list[tuple[str, str]]:
    head = []
    for text, source in segments:
        if length <= 0:
            break
        head.append((text[:length], source))
        length -= len(text)
    return head


def _tail(segments: list[tuple[str, str]], length: int) -> list[tuple[str, str]]:
    tail = []
    for text, source in segments:
        if length < len(text):
            tail.append((text[length:], source))
        length = max(0, length - len(text))
    return tail


def _merge(segments: list[tuple[str, str]]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for text, source in segments:
        if pieces and pieces[-1].source == source:
            pieces[-1] = Piece(pieces[-1].text + text, source)
        elif text:
            pieces.append(Piece(text, source))
    return tuple(pieces)
