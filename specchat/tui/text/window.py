"""The rows of a long list of sections, laid out from its end and further up only as far as needed."""

from bisect import bisect_right
from collections.abc import Sequence

from specchat.tui.text.lines import Line, Section

ROWS = 400
"""Rows laid out at first, and added when the top of them comes near."""

Row = tuple[Line, float | None]
"""A line and the heat beside it."""

Place = tuple[Section, int]
"""A section and a row as counted from its first one, negative above it."""


class Window:
    """Sections with the rows of the last ones. `first` is the index of the first section that is laid out."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.rows: list[Row] = []
        self.first = 0
        self._starts: list[int] = []

    @property
    def complete(self) -> bool:
        """Whether everything is laid out."""
        return self.first == 0

    def replace(self, start: int, sections: Sequence[Section], width: int) -> int | None:
        """Put `sections` in place of those from index `start` on; gives the first row that changed, None if none did.

        Sections that stay the same objects keep their rows. A `width` of 0 lays out nothing yet.
        """
        old = self.sections[start:]
        same = 0
        while same < len(old) and same < len(sections) and old[same] is sections[same]:
            same += 1
        if same == len(old) == len(sections):
            return None
        self.sections[start + same :] = sections[same:]
        return self._lay_out(max(start + same, self.first), width) if width else None

    def prepend(self, sections: Sequence[Section]) -> None:
        """Put sections before all others, without laying them out."""
        self.sections[:0] = sections
        self.first += len(sections)

    def reset(self, width: int) -> None:
        """Lay out anew at `width`, as many sections from the end as fill `ROWS`."""
        count, first = 0, len(self.sections)
        while first and count < ROWS:
            first -= 1
            count += len(self.sections[first].lines(width))
        self.first, self.rows, self._starts = first, [], []
        self._lay_out(first, width)

    def extend(self, width: int) -> int:
        """Lay out about `ROWS` more rows above; gives their number, 0 when everything is laid out."""
        above: list[Section] = []
        count = 0
        while self.first and count < ROWS:
            self.first -= 1
            above.insert(0, self.sections[self.first])
            count += len(above[0].lines(width))
        rows: list[Row] = []
        starts: list[int] = []
        for section in above:
            starts.append(len(rows))
            rows += _rows(section, width)
        self.rows[:0] = rows
        self._starts = starts + [start + count for start in self._starts]
        return count

    def place(self, row: int) -> Place | None:
        """Where row `row` is, to be found again after a layout: seen from the next section that shows a reply."""
        if not self._starts:
            return None
        at = max(bisect_right(self._starts, row) - 1, 0)
        laid_out = range(at, len(self._starts))
        at = next((i for i in laid_out if self.sections[self.first + i].reply is not None), at)
        return self.sections[self.first + at], row - self._starts[at]

    def row_of(self, place: Place, width: int) -> int | None:
        """The row that shows what was at `place`, laid out if need be; None when it is not there any more."""
        section, row = place
        index = next((i for i, shown in enumerate(self.sections) if shown.shows_start_of(section)), None)
        if index is None:
            return None
        while self.first > index:
            self.extend(width)
        inside = min(row, len(section.lines(width)) - 1) if self.sections[index] is section else 0
        return max(self._starts[index - self.first] + inside, 0)

    def _lay_out(self, changed: int, width: int) -> int:
        kept = changed - self.first
        row = self._starts[kept] if kept < len(self._starts) else len(self.rows)
        del self.rows[row:], self._starts[kept:]
        for section in self.sections[changed:]:
            self._starts.append(len(self.rows))
            self.rows += _rows(section, width)
        return row


def _rows(section: Section, width: int) -> list[Row]:
    return [(line, section.heat_of(index)) for index, line in enumerate(section.lines(width))]
