"""Tables as rows of text: columns shrink and cells wrap until the table fits."""

from collections.abc import Sequence
from itertools import zip_longest

from textual.content import Content

from specchat.tui.text.lines import EMPTY, TextLine, styled

_LEAST = 3

Rows = Sequence[Sequence[Content]]
"""The first row is the head."""


def column_widths(rows: Rows, room: int) -> list[int]:
    """Cells for each column, in all at most `room` where that leaves each at least three."""
    columns = max(map(len, rows), default=0)
    widths = [
        max((max(part.cell_length for part in row[i].split("\n")) for row in rows if i < len(row)), default=0)
        for i in range(columns)
    ]
    widths = [max(width, 1) for width in widths]
    excess = sum(widths) - room
    while excess > 0 and max(widths) > _LEAST:
        widest = max(range(columns), key=widths.__getitem__)
        others = sorted(set(widths) - {widths[widest]})
        floor = max(others[-1] if others else _LEAST, _LEAST)
        cut = max(1, min(excess, widths[widest] - floor))
        widths[widest] -= cut
        excess -= cut
    return widths


def table_lines(rows: Rows, aligns: Sequence[str], width: int) -> list[TextLine]:
    """Rows at most `width` cells wide, unless there are more columns than cells; those are cut at the edge."""
    widths = column_widths(rows, width - 3 * (max(map(len, rows), default=1) - 1))
    sides = [*aligns, *[""] * len(widths)][: len(widths)]
    bar = styled(" │ ", ".box")
    lines: list[TextLine] = []
    for number, row in enumerate(rows):
        filled = [*row, *[EMPTY] * (len(widths) - len(row))]
        cells = [cell.wrap(size) for cell, size in zip(filled, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=EMPTY):
            line = bar.join(_aligned(*column) for column in zip(parts, widths, sides, strict=True))
            lines.append(TextLine(line.stylize(".md-strong") if number == 0 else line))
        if number == 0:
            lines.append(TextLine(styled("─┼─".join("─" * size for size in widths), ".box"), copied=False))
    return lines


def _aligned(cell: Content, width: int, align: str) -> Content:
    space = max(width - cell.cell_length, 0)
    left = {"right": space, "center": space // 2}.get(align, 0)
    return cell.pad(left, space - left)
