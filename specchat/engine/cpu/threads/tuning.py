"""Tuning of the number of threads of a pass, by the times of passes while replies run.

Now and then, and at once when passes become slower, a trial runs every second pass with the next lower or higher
count, so that both counts meet the same load. The faster count is kept. Results do not depend on the count.
"""

from collections import deque
from collections.abc import Callable, Sequence

TRIAL_PASSES = 8
"""Passes of each count in a close trial."""
CLEAR_PASSES, CLEAR_RATIO = 4, 1.4
"""Passes of each count in a clear trial, where all of one are slower or one is CLEAR_RATIO times slower in all."""
TRIAL_SHARE = 0.02
"""Share of all time that trials may cost."""
MAX_DEBT_PASSES = 2 * TRIAL_PASSES
"""Debt of earlier trials, in usual passes, up to which a machine that got faster starts a trial."""
CHANGE_RATIO, CHANGE_PASSES = 1.4, 3
"""Ratio to the usual time that shows a change of load, and passes in a row that confirm a slowdown."""
MAX_TIME_RATIO = 0.95
"""Largest share of the time of fewer threads at which more are used: fewer leave cores to others."""
USUAL_WEIGHT = 1 / 32
"""Weight of a pass in the usual time."""
FEW_ROWS, MANY_ROWS = 2, 8
"""Most rows of a memory-bound pass; rows of the pass that stands for all compute-bound ones, which gain by threads."""


class Threads:
    """Tuner of the count for the next pass, by the times of earlier ones.

    Times count relative to the usual time for so many rows, so that passes of all sizes are compared.
    """

    def __init__(self, choices: Sequence[int], best: int | None = None) -> None:
        """Begin with `best` of the ascending `choices`, the least if it is None; a single choice is fixed."""
        self._choices = choices
        self._at = 0 if best is None else choices.index(best)
        self._usual: dict[int, float] = {}
        self._recent: deque[float] = deque(maxlen=TRIAL_PASSES)
        self._trial: _Trial | None = None
        self._budget = 0.0
        self._direction = 1

    @property
    def most(self) -> int:
        """Largest choice."""
        return self._choices[-1]

    @property
    def settled(self) -> int:
        """Best count so far, for passes that are not timed."""
        return self._choices[self._at]

    @property
    def next(self) -> int:
        """Count for the next pass, whose time `took` records."""
        trial = self._trial
        return self._choices[self._at + trial.direction] if trial is not None and trial.trying else self.settled

    def lower_to(self, count: int) -> None:
        """Lower the best count to `count` at most; a change resets the usual times."""
        if self.settled > count:
            self._at = max(at for at, choice in enumerate(self._choices) if choice <= count)
            self._trial = None
            self._recent.clear()
            self._usual.clear()

    def took(self, rows: int, seconds: float) -> None:
        """Record the time of a pass over `rows` rows with `next` threads."""
        if len(self._choices) == 1 or seconds <= 0:
            return
        usual = self._usual.setdefault(rows, seconds)
        relative = seconds / usual
        if self._trial is not None:
            self._trial.add(relative)
            if self._trial.over:
                self._decide(self._trial)
            return
        self._usual[rows] = usual * min(max(relative, 1 / 2), 2) ** USUAL_WEIGHT
        self._budget = min(self._budget + TRIAL_SHARE * relative, TRIAL_PASSES)
        self._recent.append(relative)
        newest = list(self._recent)[-CHANGE_PASSES:]
        if len(newest) == CHANGE_PASSES and min(newest) > CHANGE_RATIO:
            self._begin(-1, typical(newest))
        elif len(self._recent) == TRIAL_PASSES:
            self._consider(typical(self._recent))

    def _consider(self, load_factor: float) -> None:
        """Begin a trial if one is due; `load_factor` is recent times relative to the usual ones."""
        if load_factor > CHANGE_RATIO:
            self._begin(-1, load_factor)
        elif self._budget >= (-MAX_DEBT_PASSES if load_factor < 1 / CHANGE_RATIO else TRIAL_PASSES):
            self._direction = 1 if load_factor < 1 / CHANGE_RATIO else -self._direction
            if not self._begin(self._direction, load_factor):
                self._begin(-self._direction, load_factor)

    def _begin(self, direction: int, load_factor: float) -> bool:
        if not 0 <= self._at + direction < len(self._choices):
            return False
        self._trial = _Trial(direction, load_factor)
        return True

    def _decide(self, trial: "_Trial") -> None:
        self._trial = None
        self._recent.clear()
        self._usual = {rows: usual * trial.load_factor for rows, usual in self._usual.items()}
        if trial.won:
            self._at += trial.direction
            self._begin(trial.direction, 1.0)
        else:
            self._budget -= trial.cost


class ByRows:
    """Tuners for passes over few rows and over many, each with times of its own."""

    def __init__(self, few: int, many: int, seconds: Callable[[int, int], float]) -> None:
        """Begin with the fastest counts by `seconds(rows, count)`, of at most `few` and `many` threads."""
        self._few = _fastest(choices(few), lambda count: seconds(1, count))
        self._many = _fastest(choices(many), lambda count: seconds(MANY_ROWS, count), self._few.settled)
        self._most = self._many.settled
        """Best count for many rows at the last call of `of`."""

    def of(self, rows: int) -> Threads:
        """Return the tuner for passes over `rows` rows."""
        if self._many.settled < self._most:
            self._few.lower_to(self._many.settled)  # few rows gain less by threads, and may be rare
        self._most = self._many.settled
        return self._few if rows <= FEW_ROWS else self._many

    @property
    def most(self) -> int:
        """Most threads that work on a pass."""
        return self._many.most

    def settle(self, count: int) -> None:
        """Use `count` threads from here on."""
        self._few = self._many = Threads([count])
        self._most = count


def _fastest(counts: list[int], seconds: Callable[[int], float], least: int = 1) -> Threads:
    """Make a tuner that begins with the fastest of the counts from `least` on."""
    if len(counts) == 1:
        return Threads(counts)
    return Threads(counts, min((count for count in counts if count >= least), key=seconds))


class _Trial:
    """Trial of a neighbouring count: passes alternate between both, from `load_factor` on."""

    def __init__(self, direction: int, load_factor: float) -> None:
        self.direction = direction
        self._started_at = load_factor
        self._kept: list[float] = []
        self._tried: list[float] = []

    @property
    def trying(self) -> bool:
        """True if the next pass has the other count."""
        return len(self._tried) < len(self._kept)

    def add(self, relative: float) -> None:
        (self._tried if self.trying else self._kept).append(relative)

    @property
    def over(self) -> bool:
        """True if the result is clear, or the trial cost enough."""
        tried, kept = self._tried, self._kept
        clear = len(tried) >= CLEAR_PASSES and (max(tried) < min(kept) or max(kept) < min(tried) or self._decided)
        return clear or len(tried) == TRIAL_PASSES or sum(tried) > 2 * TRIAL_PASSES * self._started_at

    @property
    def _decided(self) -> bool:
        """True if one count is much slower than the other."""
        return not 1 / CLEAR_RATIO < typical(self._tried) / typical(self._kept) < CLEAR_RATIO

    @property
    def won(self) -> bool:
        """True if the other count is fast enough to be kept."""
        limit = typical(self._kept) * (MAX_TIME_RATIO if self.direction > 0 else 1)
        return len(self._tried) >= CLEAR_PASSES and typical(self._tried) < limit

    @property
    def load_factor(self) -> float:
        """Load factor with the count that is kept."""
        return typical(self._tried if self.won else self._kept)

    @property
    def cost(self) -> float:
        """Cost of the trial in usual passes: the extra time, at least one for each pass with the other count."""
        return max(sum(self._tried) - len(self._tried) * typical(self._kept), len(self._tried))


def typical(parts: Sequence[float]) -> float:
    """Mean without the slowest quarter, which other programs slow down."""
    counted = sorted(parts)[: len(parts) - len(parts) // 4]
    return sum(counted) / len(counted)


def choices(most: int) -> list[int]:
    """Counts that are tried: 1, 2, 3, 4, 6, 8, 12 and so on, and `most`."""
    found = [1]
    while found[-1] < most:
        last = found[-1]
        found.append(min(most, last + max(1, last // 2 if last & (last - 1) == 0 else last // 3)))
    return found
