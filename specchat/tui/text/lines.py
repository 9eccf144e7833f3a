"""Screen lines and what they are made of: the transcript shows `Section`s, lists of `TextLine`s at a given width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.style import Style

from specchat.chat.turn import Reply
from specchat.clean import clean, one_line
from specchat.tui.text.heat import heat

EMPTY = Content()
WIDEST = 2
"""Cells of the widest character."""


def without_tabs(line: Content) -> Content:
    """A line with spaces to every fourth column for its tabs."""
    spaced = line.expand_tabs(4)
    # Textual 8 may keep the width that a line had with its tabs.
    return line if spaced is line else Content(spaced.plain, list(spaced.spans))


@dataclass(eq=False, slots=True)
class Code:
    """The contents of a code box. While it is being written, `text` grows."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class TextLine:
    """One row. `content.plain[start:end]` is text; what is around it is ornament and never copied."""

    content: Content
    start: int = 0
    end: int | None = None
    soft: bool = False
    """Wrapped: the text goes on in the next line after a space (`glue`)."""
    glue: str = " "
    copied: bool = True
    """False for rows that are ornament altogether."""
    code: Code | None = None
    """The box this row belongs to."""
    more: Content | None = None
    """The text here while its message is under the cursor."""
    band: bool = False
    """True if it stands on the tinted band of a prompt."""

    @property
    def text(self) -> str:
        return self.content.plain[self.start : self.end]


def joined(lines: Sequence[TextLine]) -> str:
    """The text of rows, those that were wrapped put together again."""
    parts: list[str] = []
    for line in lines:
        if line.copied:
            parts += [line.text, line.glue if line.soft else "\n"]
    return "".join(parts).rstrip("\n")


Layout = Callable[[int], Sequence[TextLine]]

BLANK = TextLine(EMPTY)


class Section:
    """A piece of the transcript that never changes; laid out when a width is known, once per width.

    `start` and `end` are offsets in the text of `reply` that it shows; without a reply there is no heat beside it.
    `part` names what is shown in the place of a reply, the same however the chat is laid out.
    """

    __slots__ = ("_heat", "_layout", "_lines", "_width", "end", "part", "reply", "start")

    def __init__(
        self, layout: Layout, start: int = 0, end: int = 0, reply: Reply | None = None, part: str = ""
    ) -> None:
        self._layout = layout
        self._width = -1
        self._lines: Sequence[TextLine] = ()
        self._heat: Sequence[float | None] = ()
        self.start = start
        self.end = end
        self.reply = reply
        self.part = part

    def lines(self, width: int) -> Sequence[TextLine]:
        """Its rows, none wider than `width` cells."""
        if width != self._width:
            self._lines = self._layout(max(width, 8))
            self._heat = heat(self.reply, self.start, self.end, len(self._lines)) if self.reply else ()
            self._width = width
        return self._lines

    def shows_start_of(self, other: "Section") -> bool:
        """True if it is `other`, shows the same part, or the part of the same reply where `other` starts."""
        if self is other or self.part:
            return self is other or self.part == other.part
        return self.reply is not None and self.reply is other.reply and self.end > other.start

    def heat_of(self, row: int) -> float | None:
        """The share of the draft accepted in the steps that wrote row `row`, None where nothing was drafted."""
        return self._heat[row] if row < len(self._heat) else None


def styled(text: str, style: str = "") -> Content:
    """Text from anywhere, cleaned, in one style; never markup."""
    text = clean(text)
    return Content.styled(text, style) if style and text else Content(text)


def tagged(content: Content, **meta: object) -> Content:
    """`content` with metadata for its click handler (`event.style.meta`)."""
    return content.stylize(Style.from_meta(meta))


def hang(content: Content, width: int, first: Content = EMPTY, rest: Content = EMPTY) -> list[TextLine]:
    """`content` wrapped to `width` cells, `first` before its first row and `rest` before the others.

    `first` is copied with the text (a bullet belongs to it), `rest` is not.
    """
    room = max(width - max(first.cell_length, rest.cell_length), 4)
    lines: list[TextLine] = []
    prefix = first
    for hard in content.split("\n", allow_blank=True):
        rows = _wrapped(hard, room)
        for index, row in enumerate(rows):
            line = prefix + row if prefix else row
            lines.append(TextLine(line, start=0 if prefix is first else len(prefix), soft=index < len(rows) - 1))
            prefix = rest
    return lines


def named(name: str, text: str, width: int, names: int, *, style: str = "", longest: int = 400) -> list[Content]:
    """Rows of `width` cells: a name in `names` cells, and at most `longest` characters of its text beside it."""
    first = styled(name.ljust(names) if len(name) < names or not name else f"{name}  ", ".quiet")
    words = styled(one_line(text, longest), style)
    return [row.content for row in hang(words, width, first, Content(" " * names))]


def _wrapped(line: Content, room: int) -> list[Content]:
    """Its rows. One that fits stays as it is, which wrapping would take long to find."""
    if line.cell_length <= room and "\t" not in line.plain:
        return [line]
    try:
        return line.wrap(room) or [line]
    except IndexError:  # Rich 15 loses count where joiners stand beside wide characters
        size = room // WIDEST
        return [line[start : start + size] for start in range(0, len(line.plain), size)]
