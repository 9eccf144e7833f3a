"""Pieces of formulas as rows of characters, put beside and above each other."""

from collections.abc import Sequence

from rich.cells import cell_len

from specchat.dataclass import dataclass

_TALL = {"(": "⎛⎜⎝", ")": "⎞⎟⎠", "[": "⎡⎢⎣", "]": "⎤⎥⎦", "|": "│││", "‖": "║║║"}
"""Upper end, middle and lower end of delimiters beside several rows."""


@dataclass(frozen=True)
class FormulaBox:
    """Rows of one width; row number `base` stands on the line of what is beside it."""

    rows: tuple[str, ...]
    base: int = 0

    @property
    def width(self) -> int:
        return cell_len(self.rows[0])

    @property
    def flat(self) -> bool:
        return len(self.rows) == 1


def in_a_row(boxes: Sequence[FormulaBox]) -> FormulaBox:
    """The boxes from left to right, on one line."""
    above = max((box.base for box in boxes), default=0)
    below = max((len(box.rows) - box.base for box in boxes), default=1)
    rows = [""] * (above + below)
    for box in boxes:
        blank = " " * box.width
        for number in range(len(rows)):
            inside = number - above + box.base
            rows[number] += box.rows[inside] if 0 <= inside < len(box.rows) else blank
    return FormulaBox(tuple(rows), above)


def fraction(over: FormulaBox, under: FormulaBox) -> FormulaBox:
    """One box above the other, with a line between."""
    width = max(over.width, under.width) + 2
    rows = (*over.rows, "─" * width, *under.rows)
    return FormulaBox(tuple(_filled(row, width, "center") for row in rows), len(over.rows))


def table(cells: Sequence[Sequence[FormulaBox]], aligns: str, gap: str) -> FormulaBox:
    """Rows of cells with `gap` between; `aligns` has an `l`, `c` or `r` a column, and begins anew where it ends."""
    columns = max(map(len, cells))
    widths = [max((row[at].width for row in cells if at < len(row)), default=0) for at in range(columns)]
    rows: list[str] = []
    for row in cells:
        full = [*row, *[FormulaBox(("",))] * (columns - len(row))]
        sides = {"l": "left", "c": "center", "r": "right"}
        line: list[FormulaBox] = []
        for at, cell in enumerate(full):
            side = sides[aligns[at % len(aligns)]]
            line += [
                FormulaBox((gap * (at > 0),)),
                FormulaBox(tuple(_filled(text, widths[at], side) for text in cell.rows), cell.base),
            ]
        rows += in_a_row(line).rows
    return FormulaBox(tuple(rows), (len(rows) - 1) // 2)


def fenced(box: FormulaBox, left: str, right: str) -> FormulaBox:
    """A box between delimiters, as tall as it is; one of several rows has no tall form of some, such as `⟨`."""
    if box.flat:
        return FormulaBox((left + box.rows[0] + right,))
    return in_a_row([*_tall(box, left, space_after=True), box, *_tall(box, right, space_after=False)])


def _tall(box: FormulaBox, delimiter: str, *, space_after: bool) -> list[FormulaBox]:
    if not delimiter:
        return []
    size = len(box.rows)
    if delimiter in "{}":
        ends, point = ("⎧⎪⎩", "⎨") if delimiter == "{" else ("⎫⎪⎭", "⎬")
    else:
        ends, point = _TALL.get(delimiter, delimiter * 3), ""
    rows = [ends[0], *[ends[1]] * (size - 2), ends[2]]
    if point and size > 2:
        rows[size // 2] = point
    return [FormulaBox(tuple(row + " " if space_after else " " + row for row in rows), box.base)]


def _filled(text: str, width: int, side: str) -> str:
    """`text` in `width` cells."""
    spare = width - cell_len(text)
    before = {"left": 0, "center": spare // 2, "right": spare}[side]
    return " " * before + text + " " * (spare - before)
