"""Split growing Markdown into blocks that can be rendered once and frozen.

A block is a run of whole lines whose own rendering equals its part of the whole document's: a fence, a heading, one
top-level list item, a formula on lines of its own, or anything else up to a blank line. Only whole lines are judged,
so the blocks do not depend on how the text arrives in chunks.
"""

import re

from specchat.chat.reasoning import FENCE
from specchat.dataclass import dataclass
from specchat.formulas.marks import DISPLAYED

_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])([ \t]+|$)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:_[ \t]*){3,}|(?:\*[ \t]*){3,})$")


@dataclass(frozen=True)
class TextBlock:
    """Lines `source[start:end]` of the whole text.

    `code` is a fence, whose language is `info`; `math` a formula.
    """

    source: str
    start: int
    code: bool = False
    info: str = ""
    spaced: bool = False
    """True if an empty line belongs above it when shown."""
    math: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.source)

    @property
    def body(self) -> str:
        """The lines inside a fence; the source of any other block."""
        if not self.code:
            return self.source
        lines = self.source.split("\n")
        opening = FENCE.match(lines[0])
        indent = len(opening[1]) if opening else 0
        inner = lines[1:]
        while inner and not inner[-1].strip():
            inner.pop()
        if inner and opening and _closes(inner[-1], opening[2]):
            inner.pop()
        return "\n".join(_unindent(line, indent) for line in inner)


def _closes(line: str, fence: str) -> bool:
    stripped = line.strip()
    return len(line) - len(line.lstrip(" ")) < 4 and set(stripped) == {fence[0]} and len(stripped) >= len(fence)


def _unindent(line: str, indent: int) -> str:
    return line[min(indent, len(line) - len(line.lstrip(" "))) :]


class BlockSplitter:
    """Takes text as it comes; gives back closed blocks, and the open one as `tail`.

    `start` is where in the whole text the first piece begins; something stands above it when that is not 0.
    """

    def __init__(self, start: int = 0) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._start = start
        self._fence = ""
        self._inner_fence = ""
        self._formula = ""
        self._item_indent: int | None = None
        self._blank = False
        self._last_was_item = False
        self._first = not start

    def feed(self, text: str) -> list[TextBlock]:
        """Blocks that `text` closed, oldest first."""
        *whole, self._partial = (self._partial + text).split("\n")
        closed: list[TextBlock] = []
        for line in whole:
            closed += self._line(line + "\n")
        return closed

    def close(self) -> list[TextBlock]:
        """The rest, when nothing more will come."""
        closed = self._line(self._partial) if self._partial else []
        self._partial = ""
        return closed + self._flush()

    @property
    def tail(self) -> TextBlock | None:
        """The block still open, None when there is none."""
        return self._block("".join(self._lines) + self._partial)

    def _block(self, source: str) -> TextBlock | None:
        if not source.strip():
            return None
        opening = FENCE.match(source.split("\n", 1)[0])
        item = self._item_indent is not None or (not self._lines and _ITEM.match(source) is not None)
        spaced = not self._first and not (self._last_was_item and item and not self._blank)
        info = opening[3].strip() if opening else ""
        return TextBlock(source, self._start, opening is not None, info, spaced, bool(self._formula))

    def _line(self, line: str) -> list[TextBlock]:
        text = line.rstrip("\n")
        if self._fence:
            self._lines.append(line)
            return self._flush() if _closes(text, self._fence) else []
        if self._inner_fence:
            self._lines.append(line)
            if _closes(text.strip(), self._inner_fence):
                self._inner_fence = ""
            return []
        if not text.strip():
            return self._blank_line(line)
        return self._text_line(line, text)

    def _blank_line(self, line: str) -> list[TextBlock]:
        if not self._lines:
            self._start += len(line)
            self._blank = True
            return []
        self._lines.append(line)
        if self._item_indent is not None:
            return []
        self._formula = ""  # it was none: a formula has no empty lines
        closed = self._flush()
        self._blank = True
        return closed

    def _text_line(self, line: str, text: str) -> list[TextBlock]:
        closed: list[TextBlock] = []
        indent = len(text) - len(text.lstrip(" "))
        if self._item_indent is not None:
            after_blank = bool(self._lines) and not self._lines[-1].strip()
            if indent >= self._item_indent:
                inner = FENCE.match(text.lstrip(" "))
                if inner:
                    self._inner_fence = inner[2]
                self._lines.append(line)
                return closed
            if after_blank or _ITEM.match(text) or FENCE.match(text) or _HEADING.match(text):
                closed += self._flush()
                self._blank = after_blank
        if fence := FENCE.match(text):
            self._formula = ""
            closed += self._flush()
            self._lines, self._fence = [line], fence[2]
            return closed
        if self._formula:
            self._lines.append(line)
            return closed + self._flush() if self._formula in text else closed
        if indent < 4 and (opening := text.lstrip()[:2]) in DISPLAYED and DISPLAYED[opening] not in text.lstrip()[2:]:
            closed += self._flush()
            self._lines, self._formula = [line], DISPLAYED[opening]
            return closed
        if _HEADING.match(text):
            closed += self._flush()
            self._lines = [line]
            return closed + self._flush()
        item = None if _RULE.match(text) else _ITEM.match(text)
        if item and indent < 4 and (not self._lines or _interrupts(item, text)):
            closed += self._flush()
            self._item_indent = min(len(item[0]), len(item[1]) + len(item[2]) + 4)
            inner = FENCE.match(text[len(item[0]) :])
            self._inner_fence = inner[2] if inner else ""
        self._lines.append(line)
        return closed

    def _flush(self) -> list[TextBlock]:
        source = "".join(self._lines)
        block = self._block(source)
        self._start += len(source)
        self._lines = []
        if block is None:
            return []
        self._first = False
        self._last_was_item = self._item_indent is not None
        self._fence = self._inner_fence = self._formula = ""
        self._item_indent = None
        self._blank = False
        return [block]


def _interrupts(item: re.Match[str], text: str) -> bool:
    """True if a list item may start without a blank line before it: not when empty, and numbered ones only at 1."""
    return bool(text[item.end() :].strip()) and (item[2] in "-*+" or item[2][:-1] == "1")


def split(text: str) -> list[TextBlock]:
    """All blocks of a finished text."""
    splitter = BlockSplitter()
    return splitter.feed(text) + splitter.close()
