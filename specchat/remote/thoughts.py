"""Tells reasoning from the answer where a server sends both as one text, with marks around the reasoning."""

from dataclasses import dataclass

from specchat.engine.text.marks import MARKS, begun_mark, closes_unopened

LONGEST = max(len(marks.opening) for marks in MARKS)
_OPENED = {marks.opening: marks.closing for marks in MARKS}
_CLOSINGS = tuple(_OPENED.values())


@dataclass(frozen=True)
class SplitText:
    """A part of a reply; `turned`: all text before was reasoning as well."""

    thought: str = ""
    answer: str = ""
    turned: bool = False


class ThoughtSplitter:
    """Splits a reply's text. Reasoning stands at its start; where the prompt opened it, the reply only closes it."""

    def __init__(self, thinks: bool = False) -> None:
        """`thinks`: the prompt ends inside reasoning."""
        self._state = "thought" if thinks else "start"
        self._closings = _CLOSINGS
        """Marks that end the reasoning."""
        self._held = ""
        """Text that may begin a mark."""
        self._last = ""
        """The last character before it that is no space."""
        self._trim = thinks
        """True while empty lines beside a mark are left out."""

    def leave(self) -> None:
        """Take all that follows for an answer: the server splits by itself, or the reply goes on from its middle."""
        self._state = "answer"

    def split(self, text: str) -> SplitText:
        """The next part of the text, less what may begin a mark."""
        held, self._held = self._held + text, ""
        if self._state == "start":
            start = held.lstrip()
            if len(start) < LONGEST and any(mark.startswith(start) and mark != start for mark in _OPENED):
                self._held = held
                return SplitText()
            opening = next((mark for mark in _OPENED if start.startswith(mark)), "")
            self._state = "thought" if opening else "unmarked"
            if opening:
                self._closings, self._trim, held = (_OPENED[opening],), True, start.removeprefix(opening)
        return self._thinking(held) if self._state == "thought" else self._answering(held)

    def finish(self) -> SplitText:
        """The rest at the end of the reply."""
        held, self._held = self._held, ""
        return SplitText(thought=held) if self._state == "thought" else SplitText(answer=held)

    def _thinking(self, held: str) -> SplitText:
        held = self._trimmed(held)
        at, closing = _first(held, self._closings)
        if not closing:
            keep = begun_mark(held, self._closings)
            self._held = held[len(held) - keep :]
            return SplitText(thought=held[: len(held) - keep])
        self._state, self._trim = "answer", True
        return SplitText(held[:at], self._trimmed(held[at + len(closing) :]))

    def _answering(self, held: str) -> SplitText:
        if self._state == "answer":
            return SplitText(answer=self._trimmed(held))
        at, closing = _first(held, _CLOSINGS)
        if closing and closes_unopened(self._last + held[:at]):
            self._state, self._trim = "answer", True
            return SplitText(held[:at], self._trimmed(held[at + len(closing) :]), turned=True)
        keep = begun_mark(held, _CLOSINGS)
        self._held, told = held[len(held) - keep :], held[: len(held) - keep]
        self._last = (self._last + told).rstrip(" \t")[-1:]
        return SplitText(answer=told)

    def _trimmed(self, text: str) -> str:
        if self._trim:
            text = text.lstrip("\n")
            self._trim = not text
        return text


def _first(text: str, marks: tuple[str, ...]) -> tuple[int, str]:
    """The place of the first mark, and the mark; empty if there is none."""
    return min(((text.find(mark), mark) for mark in marks if mark in text), default=(len(text), ""))
