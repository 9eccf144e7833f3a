"""Drafted tokens that were accepted: their share beside the rows of a reply, their number step by step."""

from bisect import bisect_left, bisect_right

from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Step

GLYPHS = ((0.75, "●"), (0.45, "◐"), (0.0, "○"))
"""For a share of at least so much, the highest first. Bars would look like a second scrollbar."""
NOTHING_DRAFTED = "·"


def glyph_of(share: float) -> str:
    """The cell that stands for a share of 0 to 1."""
    return next(glyph for least, glyph in GLYPHS if share >= least)


def heat(reply: Reply, start: int, end: int, rows: int) -> list[float | None]:
    """For each of `rows` equal slices of the text from `start` to `end`: accepted over longest accepted so far."""
    longest = _longest(reply)
    values: list[float | None] = []
    for row in range(rows):
        low = start + (end - start) * row // rows
        high = start + (end - start) * (row + 1) // rows
        first, last = steps_of(reply, low, max(high, low + 1))
        steps = [step for step in reply.steps[first:last] if step.drafted]
        values.append(sum(step.accepted for step in steps) / len(steps) / longest if steps else None)
    return values


def steps_of(reply: Reply, start: int, end: int) -> tuple[int, int]:
    """The first step that wrote anything of the text from `start` to `end`, and the one after the last."""
    return max(bisect_right(reply.offsets, start) - 1, 0), bisect_left(reply.offsets, end)


def step_glyph(step: Step) -> str:
    """The cell that stands for one verify step: the number of accepted tokens, `+` from ten on."""
    if not step.drafted:
        return NOTHING_DRAFTED
    return str(step.accepted) if step.accepted < 10 else "+"


def _longest(reply: Reply) -> int:
    return max(len(reply.tally.histogram) - 1, 1)


@dataclass(frozen=True)
class Stretch:
    """The part of a reply that is on the screen: its text from `start` to `end`, and a step that is looked at."""

    reply: Reply
    start: int
    end: int
    step: int | None = None

    @property
    def steps(self) -> tuple[int, int]:
        return steps_of(self.reply, self.start, self.end)

    def first_cell(self, cells: int) -> int:
        """The step in the first of so many cells, one a step: as far along as the stretch is in the reply.

        A step that is looked at is always among them.
        """
        low, high = self.steps
        total = len(self.reply.steps)
        if total <= cells:
            return 0
        elsewhere = total - (high - low)
        first = round((total - cells) * low / elsewhere) if elsewhere > 0 else total - cells
        if self.step is not None:
            first = min(max(first, self.step - cells + 1), self.step)
        return max(min(first, total - cells), 0)
