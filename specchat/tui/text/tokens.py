"""The token view: a reply coloured by source, rejected drafts as ghosts, changes of strategy marked where they fell."""

from dataclasses import dataclass

from textual.content import Content, Span

from specchat.chat.sources import REJECTED, rejected_text, source_of
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.tui.text.lines import Section, hang

_GHOST = 24
"""Characters of a rejected draft that are shown."""

_TAB = "⇥   "


@dataclass(frozen=True, slots=True)
class Token:
    """Piece number `piece` of step number `step`, at `plain[start:end]` of the section that shows it."""

    start: int
    end: int
    step: int
    piece: int


class TokenSection(Section):
    """A line of a reply's text. `plain` is what is shown of it before it is wrapped."""

    __slots__ = ("plain", "tokens")

    def __init__(self, content: Content, tokens: tuple[Token, ...], start: int, end: int, reply: Reply) -> None:
        super().__init__(lambda width: hang(content, width), start, end, reply)
        self.plain = content.plain
        self.tokens = tokens


class TokenView:
    """Sections of one reply, one a line of text; whole lines are frozen, `open` is the line being written."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._steps = 0
        self._marks = 0
        self._start = 0
        self._text = ""
        self._spans: list[Span] = []
        self._tokens: list[Token] = []
        self._offset = 0
        self._begun = False
        self.frozen: list[Section] = []

    def update(self) -> None:
        """Take in the steps that came since the last call."""
        if not self._begun and self._reply.length:
            self._begun = True
            self._take(self._reply.beginning, "")
        for step in self._reply.steps[self._steps :]:
            self._take_marks(self._steps)
            self._steps += 1
            text, others = rejected_text(step)
            ghost = _ghost(text)
            pieces = step.pieces
            rejected_at = len(pieces) - 1 if pieces and pieces[-1].source == "target" else len(pieces)
            for index, piece in enumerate(pieces):
                if index == rejected_at:
                    self._rejected(ghost, others)
                self._take(clean(piece.text), source_of(piece.source).style, (self._steps - 1, index))
            if rejected_at == len(pieces):
                self._rejected(ghost, others)
            for piece in step.call_pieces:  # no part of the reply's text
                written = clean(piece.text).replace("\n", "↵").replace("\t", _TAB)
                self._append(written, source_of(piece.source).style)
        self._take_marks(self._steps)

    def open(self) -> list[Section]:
        """The line being written, if there is any of it."""
        return [self._section()] if self._text else []

    def _rejected(self, ghost: str, others: int) -> None:
        self._append(ghost, REJECTED.style)
        if others:
            self._append(f"⟨+{others}⟩", ".mark")

    def _take_marks(self, step: int) -> None:
        marks = self._reply.marks
        while self._marks < len(marks) and marks[self._marks].step <= step:
            self._append(f" ⟨{marks[self._marks].text}⟩ ", ".mark")
            self._marks += 1

    def _take(self, text: str, style: str, token: tuple[int, int] | None = None) -> None:
        """Take in text: the step and the number of its piece, where a step wrote it."""
        *whole, last = text.split("\n")
        for line in whole:
            self._take_token(f"{line}↵", style, token)
            self.frozen.append(self._section())
            self._text, self._spans, self._start, self._tokens = "", [], self._offset, []
        self._take_token(last, style, token)

    def _take_token(self, text: str, style: str, token: tuple[int, int] | None) -> None:
        if text:
            start = len(self._text)
            self._append(text.replace("\t", _TAB), style)
            self._offset += len(text)
            if token is not None:
                self._tokens.append(Token(start, len(self._text), *token))

    def _append(self, text: str, style: str) -> None:
        if text:
            start = len(self._text)
            self._text += text
            if self._spans and self._spans[-1].style == style and self._spans[-1].end == start:
                start = self._spans.pop().start
            if style:
                self._spans.append(Span(start, len(self._text), style))

    def _section(self) -> Section:
        content = Content(self._text, self._spans.copy())
        end = max(self._offset, self._start + 1)
        return TokenSection(content, tuple(self._tokens), self._start, end, self._reply)


def _ghost(text: str) -> str:
    shown = clean(text).replace("\n", "↵").replace("\t", " ")
    return shown if len(shown) <= _GHOST else shown[: _GHOST - 1] + "…"
