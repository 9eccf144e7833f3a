"""The cost of steps: drafting, and checking so many rows, as measured and between and beyond what was measured."""

from collections.abc import Iterable, Sequence
from dataclasses import field

from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Step
from specchat.engine.strategies import begins_verify


@dataclass
class Checks:
    """Measured verify passes by their rows, which are the drafted tokens and the pending one."""

    sums: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Rows to the number of passes and their milliseconds in all."""

    @classmethod
    def of(cls, steps: Iterable[Step], begun: bool = False) -> "Checks":
        """Whole verify passes, or those that drafting had `begun`: the two cost differently."""
        checks = cls()
        for step in steps:
            checks.add(step, begun)
        return checks

    def add(self, step: Step, begun: bool = False) -> None:
        """Add the check of a step, if it is of the kind that is counted: as in `of`."""
        if begun != (step.drafted > 0 and begins_verify(step.strategy)):
            return
        rows = step.drafted + 1
        passes, milliseconds = self.sums.get(rows, (0, 0.0))
        self.sums[rows] = (passes + 1, milliseconds + step.verify_ms)

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of rows that were measured, lowest first."""
        return tuple(sorted(self.sums))


@dataclass(frozen=True)
class CheckCost:
    """Milliseconds of a verify pass by rows: the means measured, more rows never cheaper, straight lines between.

    Outside of what was measured it goes on with `slope`, the least-squares line's; flat where only one number of rows
    was measured.
    """

    rows: tuple[int, ...]
    milliseconds: tuple[float, ...]
    slope: float

    @classmethod
    def of(cls, checks: Checks, one_row_ms: float | None = None) -> "CheckCost":
        """`one_row_ms` stands in for a pass of one row where `checks` has none.

        Raises:
            ValueError: there is no pass at all.
        """
        points = {rows: (float(passes), total / passes) for rows, (passes, total) in checks.sums.items()}
        if one_row_ms is not None:
            points.setdefault(1, (1.0, one_row_ms))
        if not points:
            raise ValueError("no pass was measured")
        rows = sorted(points)
        values = _rising([points[row] for row in rows])
        weights = [points[row][0] for row in rows]
        return cls(tuple(rows), tuple(values), _slope(rows, values, weights))

    def at(self, rows: int) -> float:
        """Milliseconds of a pass of `rows` rows."""
        first, last = self.rows[0], self.rows[-1]
        if rows <= first:
            return max(self.milliseconds[0] - self.slope * (first - rows), 0.0)
        if rows >= last:
            return self.milliseconds[-1] + self.slope * (rows - last)
        above = next(i for i, known in enumerate(self.rows) if known >= rows)
        low, high = self.rows[above - 1], self.rows[above]
        share = (rows - low) / (high - low)
        return (1 - share) * self.milliseconds[above - 1] + share * self.milliseconds[above]


@dataclass(frozen=True)
class DraftCost:
    """Milliseconds of drafts by their lengths, on the least-squares line of those that were made.

    `reading_ms` is what the first one took beyond that: a model reads the prompt for it.
    """

    fixed_ms: float
    token_ms: float
    reading_ms: float = 0.0

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "DraftCost":
        """Cost of the steps that drafted."""
        first, *others = [(step.drafted, step.draft_ms) for step in steps if step.drafted] or [(1, 0.0)]
        made = others or [first]
        tokens = sum(drafted for drafted, _ in made) / len(made)
        mean = sum(ms for _, ms in made) / len(made)
        slope = _slope([drafted for drafted, _ in made], [ms for _, ms in made], [1.0] * len(made))
        # Drafts of one length do not show which part is fixed.
        token_ms = min(slope, mean / tokens) if len({drafted for drafted, _ in made}) > 1 else mean / tokens
        fixed_ms = mean - token_ms * tokens
        reading_ms = first[1] - fixed_ms - token_ms * first[0] if others else 0.0
        return cls(fixed_ms, token_ms, max(0.0, reading_ms))


def _rising(points: list[tuple[float, float]]) -> list[float]:
    """The values of (weight, value) points with neighbours that fall averaged until none does."""
    blocks: list[tuple[float, float, int]] = []
    for weight, value in points:
        size = 1
        while blocks and blocks[-1][1] > value:
            other, mean, width = blocks.pop()
            weight, value, size = weight + other, (weight * value + other * mean) / (weight + other), size + width
        blocks.append((weight, value, size))
    return [value for _, value, size in blocks for _ in range(size)]


def _slope(rows: Sequence[int], values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(weights)
    centre = sum(w * r for w, r in zip(weights, rows, strict=True)) / total
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / total
    spread = sum(w * (r - centre) ** 2 for w, r in zip(weights, rows, strict=True))
    along = sum(w * (r - centre) * (v - mean) for w, r, v in zip(weights, rows, values, strict=True))
    return max(along / spread, 0.0) if spread else 0.0
