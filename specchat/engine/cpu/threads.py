"""How many threads make a pass, learnt from the passes themselves while replies run.

Now and then, and at once when passes become slower, some of them go through with the next lower or the next higher
count, every second one, so that both counts are timed on the same machine; the faster count stays. Whatever the count,
the bits are the same.
"""

from collections import deque
from collections.abc import Callable, Sequence

TRIAL = 8
"""Passes by which a count is judged where it is a close thing."""
CLEAR, FAR = 4, 1.4
"""Passes after which it is judged where all of them were slower, or all faster, or so many times on the whole."""
SHARE = 0.02
"""Part of the time that trials may cost."""
OWED = 2 * TRIAL
"""What earlier trials may have cost too much, in usual passes, when a machine that got faster is tried all the same."""
CHANGED, SOON = 1.4, 3
"""So many times slower or faster than usual, and the machine is another than it was; slower so many times in a row, and
that is sure."""
GAIN = 0.95
"""What more threads must take at most of the time of fewer: those leave the processor to others."""
FORGOTTEN = 1 / 32
"""What a pass changes of what is usual."""
FEW_ROWS, MANY = 2, 8
"""Passes over so few rows wait for memory, others for sums, of which more threads make more; and rows that stand for
these."""


class Threads:
    """The count for the next pass, by the times of those before.

    Times are compared as parts of what is usual for so many rows, so that steps of all sizes tell alike.
    """

    def __init__(self, choices: Sequence[int], best: int | None = None) -> None:
        """`choices` ascending, of which `best` is taken first; the least where it is None. One alone is never left."""
        self._choices = choices
        self._at = 0 if best is None else choices.index(best)
        self._usual: dict[int, float] = {}
        self._recent: deque[float] = deque(maxlen=TRIAL)
        self._trial: _Trial | None = None
        self._room = 0.0
        self._side = 1

    @property
    def most(self) -> int:
        """The largest choice."""
        return self._choices[-1]

    @property
    def settled(self) -> int:
        """The count that is best so far, for passes that are not learnt from."""
        return self._choices[self._at]

    @property
    def next(self) -> int:
        """The count for the next pass, the time of which `took` is to be told."""
        trial = self._trial
        return self._choices[self._at + trial.side] if trial is not None and trial.trying else self.settled

    def at_most(self, count: int) -> None:
        """Go on with so many where there are more; what passes usually take is learnt anew."""
        if self.settled > count:
            self._at = max(at for at, choice in enumerate(self._choices) if choice <= count)
            self._trial = None
            self._recent.clear()
            self._usual.clear()

    def took(self, rows: int, seconds: float) -> None:
        """Learn that a pass over so many rows, with `next` threads, took so long."""
        if len(self._choices) == 1 or seconds <= 0:
            return
        usual = self._usual.setdefault(rows, seconds)
        part = seconds / usual
        if self._trial is not None:
            self._trial.add(part)
            if self._trial.over:
                self._decide(self._trial)
            return
        self._usual[rows] = usual * min(max(part, 1 / 2), 2) ** FORGOTTEN
        self._room = min(self._room + SHARE * part, TRIAL)
        self._recent.append(part)
        newest = list(self._recent)[-SOON:]
        if len(newest) == SOON and min(newest) > CHANGED:
            self._begin(-1, typical(newest))
        elif len(self._recent) == TRIAL:
            self._consider(typical(self._recent))

    def _consider(self, level: float) -> None:
        """Begin a trial where it is time for one; `level` is how slow passes are beside what is usual."""
        if level > CHANGED:
            self._begin(-1, level)
        elif self._room >= (-OWED if level < 1 / CHANGED else TRIAL):
            self._side = 1 if level < 1 / CHANGED else -self._side
            if not self._begin(self._side, level):
                self._begin(-self._side, level)

    def _begin(self, side: int, level: float) -> bool:
        if not 0 <= self._at + side < len(self._choices):
            return False
        self._trial = _Trial(side, level)
        return True

    def _decide(self, trial: "_Trial") -> None:
        self._trial = None
        self._recent.clear()
        self._usual = {rows: usual * trial.level for rows, usual in self._usual.items()}
        if trial.won:
            self._at += trial.side
            self._begin(trial.side, 1.0)
        else:
            self._room -= trial.cost


class ByRows:
    """The counts for passes over few rows and for those over many, each learnt from its own."""

    def __init__(self, few: int, many: int, seconds: Callable[[int, int], float]) -> None:
        """At most `few` and `many` threads, to begin with as many as are fastest by `seconds(rows, count)`."""
        self._few = _fastest(choices(few), lambda count: seconds(1, count))
        self._many = _fastest(choices(many), lambda count: seconds(MANY, count), self._few.settled)
        self._most = self._many.settled
        """That of many rows when it was asked for last."""

    def of(self, rows: int) -> Threads:
        """The count for passes over so many rows."""
        if self._many.settled < self._most:
            self._few.at_most(self._many.settled)  # which gain less by threads, and may come up seldom
        self._most = self._many.settled
        return self._few if rows <= FEW_ROWS else self._many

    @property
    def most(self) -> int:
        """The most that work on a pass."""
        return self._many.most

    def settle(self, count: int) -> None:
        """Use so many from here on."""
        self._few = self._many = Threads([count])
        self._most = count


def _fastest(counts: list[int], seconds: Callable[[int], float], least: int = 1) -> Threads:
    """To begin with the fastest of `least` and more."""
    if len(counts) == 1:
        return Threads(counts)
    return Threads(counts, min((count for count in counts if count >= least), key=seconds))


class _Trial:
    """Passes with another count, each after one with the count there is, from a machine where passes take `level`."""

    def __init__(self, side: int, level: float) -> None:
        self.side = side
        self._before = level
        self._kept: list[float] = []
        self._tried: list[float] = []

    @property
    def trying(self) -> bool:
        """Whether the next pass has the other count."""
        return len(self._tried) < len(self._kept)

    def add(self, part: float) -> None:
        (self._tried if self.trying else self._kept).append(part)

    @property
    def over(self) -> bool:
        """Whether enough is known, or enough was lost."""
        tried, kept = self._tried, self._kept
        clear = len(tried) >= CLEAR and (max(tried) < min(kept) or max(kept) < min(tried) or self._far)
        return clear or len(tried) == TRIAL or sum(tried) > 2 * TRIAL * self._before

    @property
    def _far(self) -> bool:
        """Whether one is much slower than the other."""
        return not 1 / FAR < typical(self._tried) / typical(self._kept) < FAR

    @property
    def won(self) -> bool:
        """Whether the other count is to stay."""
        limit = typical(self._kept) * (GAIN if self.side > 0 else 1)
        return len(self._tried) >= CLEAR and typical(self._tried) < limit

    @property
    def level(self) -> float:
        """What passes take with the count that stays."""
        return typical(self._tried if self.won else self._kept)

    @property
    def cost(self) -> float:
        """What the trial took besides, in usual passes; at least one for each pass that was tried."""
        return max(sum(self._tried) - len(self._tried) * typical(self._kept), len(self._tried))


def typical(parts: Sequence[float]) -> float:
    """The mean without the slowest quarter: something always comes between."""
    counted = sorted(parts)[: len(parts) - len(parts) // 4]
    return sum(counted) / len(counted)


def choices(most: int) -> list[int]:
    """Counts that are worth a trial: 1, 2, 3, 4, 6, 8, 12 and so on, and the most."""
    found = [1]
    while found[-1] < most:
        last = found[-1]
        found.append(min(most, last + max(1, last // 2 if last & (last - 1) == 0 else last // 3)))
    return found
