"""The end of a text, as many rows of it as fit."""

from textual.content import Content

from specchat.tui.text.lines import Section, without_tabs

_PATIENCE = 8
"""Screens of text that one line may fill before only its end is wrapped."""


def tail_rows(text: str, width: int, height: int) -> list[Content]:
    """The last `height` rows of cleaned text wrapped to `width` cells."""
    width = max(width, 2)
    rows: list[Content] = []
    for line in reversed(text[-_PATIENCE * width * max(height, 1) :].split("\n")):
        rows[:0] = without_tabs(Content(line)).wrap(width) or [Content()]
        if len(rows) >= height:
            break
    return rows[len(rows) - height :] if len(rows) > height else rows


def tail_of(sections: list[Section], width: int, height: int) -> list[Content]:
    """The last `height` rows of sections."""
    rows: list[Content] = []
    for section in reversed(sections):
        rows[:0] = [line.content for line in section.lines(width)]
        if len(rows) >= height:
            break
    return rows[len(rows) - height :] if len(rows) > height else rows
