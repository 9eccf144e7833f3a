"""The rows of a long list of sections: a stretch of it is laid out, and more at either end as it is needed."""

from bisect import bisect_right
from collections.abc import Sequence

from specchat.chat.turn import Turn
from specchat.dataclass import dataclass
from specchat.tui.text.lines import Section, TextLine

ROWS = 400
"""Rows laid out at first."""

MORE = 120
"""Rows added when an end comes near: few enough to come between two frames."""

Row = tuple[TextLine, float | None]
"""A line and the heat beside it."""


@dataclass(frozen=True)
class Place:
    """The place of a row, to be found again after a layout: a row as counted from the first one of a section."""

    turn: Turn
    section: Section
    row: int

    def row_in(self, section: Section, start: int, width: int) -> int:
        """The row now, `section` being what shows the place from row `start` on."""
        same = section is self.section
        return max(start + (min(self.row, len(section.lines(width)) - 1) if same else 0), 0)


class SectionWindow:
    """Sections, of which those from index `first` up to `last` have their rows in `rows`."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.rows: list[Row] = []
        self.first = 0
        self.last = 0
        self._starts: list[int] = []

    @property
    def complete(self) -> bool:
        """True if everything above is laid out."""
        return self.first == 0

    @property
    def complete_below(self) -> bool:
        """True if everything below is laid out."""
        return self.last == len(self.sections)

    # Changing the sections

    def replace(self, start: int, sections: Sequence[Section], width: int) -> int | None:
        """Put `sections` in place of those from index `start` on; gives the first row that changed, None if none did.

        Sections that stay the same objects keep their rows. A `width` of 0 lays out nothing yet, and what comes after
        an end that is not laid out is not laid out either.
        """
        old = self.sections[start:]
        same = 0
        while same < len(old) and same < len(sections) and old[same] is sections[same]:
            same += 1
        if same == len(old) == len(sections):
            return None
        reached = self.complete_below
        self.sections[start + same :] = sections[same:]
        if not width:
            self.first = self.last = len(self.sections)
            self.rows, self._starts = [], []
            return None
        changed = max(start + same, self.first)
        if changed >= self.last and not reached:
            return None
        kept = changed - self.first
        row = self._starts[kept] if kept < len(self._starts) else len(self.rows)
        del self.rows[row:], self._starts[kept:]
        self.last = changed
        self._add_below(len(self.sections), width)
        return row

    def prepend(self, sections: Sequence[Section]) -> None:
        """Put sections before all others, without laying them out."""
        self.sections[:0] = sections
        self.first += len(sections)
        self.last += len(sections)

    def append(self, sections: Sequence[Section]) -> None:
        """Put sections after all others, without laying them out."""
        self.sections += sections

    # Laying out

    def open_at(self, index: int, width: int) -> None:
        """Lay out anew at `width`, about `ROWS` rows above section `index` and as many from it on."""
        self.rows, self._starts = [], []
        self.first = self.last = index
        self.extend(width, ROWS)
        self.extend_below(width, ROWS)

    def extend(self, width: int, rows: int = MORE) -> int:
        """Lay out about `rows` more rows above; gives their number, 0 when everything is laid out."""
        first, count = self.first, 0
        while first and count < rows:
            first -= 1
            count += len(self.sections[first].lines(width))
        above: list[Row] = []
        starts: list[int] = []
        for section in self.sections[first : self.first]:
            starts.append(len(above))
            above += _rows(section, width)
        self.first = first
        self.rows[:0] = above
        self._starts = starts + [start + count for start in self._starts]
        return count

    def extend_below(self, width: int, rows: int = MORE) -> int:
        """Lay out about `rows` more rows below; gives their number."""
        before, upto = len(self.rows), self.last
        while upto < len(self.sections) and len(self.rows) - before < rows:
            upto += 1
            self._add_below(upto, width)
        return len(self.rows) - before

    def _add_below(self, upto: int, width: int) -> None:
        for section in self.sections[self.last : upto]:
            self._starts.append(len(self.rows))
            self.rows += _rows(section, width)
        self.last = upto

    # Places

    def section_at(self, row: int) -> tuple[int, int] | None:
        """The index of the section that shows `row`, and the row as counted from its first one; None without rows."""
        at = bisect_right(self._starts, row) - 1
        return (self.first + at, row - self._starts[at]) if at >= 0 else None

    def start_of(self, index: int) -> int | None:
        """The first row of section `index`, None while it is not laid out."""
        return self._starts[index - self.first] if self.first <= index < self.last else None

    def place(self, row: int) -> tuple[Section, int] | None:
        """A section and row `row` as counted from its first one: from the next section with a reply or a part on."""
        if not self._starts:
            return None
        at = max(bisect_right(self._starts, row) - 1, 0)
        laid_out = range(at, len(self._starts))
        sections = ((i, self.sections[self.first + i]) for i in laid_out)
        at = next((i for i, section in sections if section.reply is not None or section.part), at)
        return self.sections[self.first + at], row - self._starts[at]


def _rows(section: Section, width: int) -> list[Row]:
    return [(line, section.heat_of(index)) for index, line in enumerate(section.lines(width))]
