"""The end of a text, as many rows of it as fit."""

from collections.abc import Iterable

from textual.content import Content

from specchat.tui.text.lines import Section, without_tabs

_PATIENCE = 8
"""Screens of text that one line may fill before only its end is wrapped."""


def tail_rows(text: str, width: int, height: int) -> list[Content]:
    """The last `height` rows of cleaned text wrapped to `width` cells."""
    width = max(width, 2)
    lines = reversed(text[-_PATIENCE * width * max(height, 1) :].split("\n"))
    return _tail((without_tabs(Content(line)).wrap(width) or [Content()] for line in lines), height)


def tail_of(sections: list[Section], width: int, height: int) -> list[Content]:
    """The last `height` rows of sections."""
    return _tail(([line.content for line in section.lines(width)] for section in reversed(sections)), height)


def _tail(parts: Iterable[list[Content]], height: int) -> list[Content]:
    """The last `height` rows of parts, of which the last comes first."""
    rows: list[Content] = []
    for part in parts:
        rows[:0] = part
        if len(rows) >= height:
            break
    return rows[max(len(rows) - height, 0) :]
