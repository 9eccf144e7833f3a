"""Long lines of code wrapped between words; what goes on is marked, and as far in as its line."""

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells
from textual.content import Content

from specchat.tui.text.lines import EMPTY, styled, without_tabs

_PIECES = re.compile(r"\s+|\w+|[^\w\s]")
_MARK = "↪ "
_LEAST = 12
"""Cells of a row below which nothing stands before what goes on."""


def wrapped(line: Content, width: int) -> list[tuple[Content, Content, str]]:
    """Rows of at most `width` cells: what stands before the text, the text, and what was between it and the next one.

    Texts and what was between them are the line. A word is cut only where it is longer than a row.
    """
    line = without_tabs(line)
    if line.cell_length <= width:
        return [(EMPTY, line, "")]
    plain, before, rest = line.plain, EMPTY, width
    if width >= _LEAST:
        indent = min(len(plain) - len(plain.lstrip(" ")), width // 2)
        before = styled(" " * indent + _MARK, ".box")
        rest = width - before.cell_length
    rows: list[tuple[Content, Content, str]] = []
    start = end = used = 0
    for piece in _pieces(plain, rest):
        cells = cell_len(piece)
        if used and used + cells > (rest if rows else width):
            glue = piece if piece == " " else ""
            rows.append((before if rows else EMPTY, line[start:end], glue))
            start, used = end + len(glue), 0
            cells -= len(glue)
        used += cells
        end += len(piece)
    return [*rows, (before if rows else EMPTY, line[start:], "")]


def _pieces(text: str, width: int) -> Iterator[str]:
    """Words, spaces and signs, none wider than `width` cells."""
    for piece in _PIECES.findall(text):
        if cell_len(piece) > width:
            yield from chop_cells(piece, width)
        else:
            yield piece
