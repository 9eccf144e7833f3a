"""Costs of the parts of a step, measured at each step.

v(M) is the time of verifying M tokens, D that of a strategy per drafted token, o that of the rest of a step. Older
measurements weigh less, and one slow step or a jump of the clock changes little. The load of the machine is measured
apart: costs are stored without load, so that old and new ones compare.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from specchat.engine.decoding.means import FIRST, KEPT, RISE, SEEN, Line, Mean, SteadyMean
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.strategy import MAX_DRAFT_LENGTH

STEADY = 32
"""Verify passes of well-known sizes after which the table of costs is computed anew."""
SLOPE = 0.05
"""Assumed cost of one more token, as a share of verifying one, until a second size is measured."""
SEVERAL, AT_ONCE = 4, 1.5
"""One pass makes a whole draft if a draft of `SEVERAL` tokens takes less than `AT_ONCE` times one of one token."""
ALL_NEW = 1_000
"""Steps added to `measured` when costs are reset or replaced, so that users review them."""
SHARE, MOST = 0.3, 2.0
"""Weight of a step in the load factor, and largest ratio to its expected time that counts."""
LARGE, LEAST = 1e9, 1e-6
"""Bounds of weights."""


class LoadFactor:
    """Slowdown of the machine against its first state, which is 1. A busy, hot or throttled machine slows all steps.

    Each kind of step thus updates the costs of all others. Measurements are divided by `value`, and stored costs are
    multiplied by it.
    """

    def __init__(self) -> None:
        self.value = 1.0

    def update(self, ms: float, known: float) -> float:
        """Update the load from a step that took `ms` and takes `known` without load; return its load-corrected time.

        All estimators use load-corrected times with small weights, or they drift apart.
        """
        ms = min(max(ms / self.value, known / MOST), known * MOST)
        self.value *= (ms / known) ** SHARE
        return ms


class VerifyCosts:
    """v(M): milliseconds of verifying M tokens, interpolated between measured sizes."""

    def __init__(self) -> None:
        self._means: dict[int, SteadyMean] = {}
        self._weights: dict[int, float] = {}
        self._newest = 1.0
        """Weight of the last pass; it grows, so that older passes weigh less."""
        self._table: list[float] = []
        """Cached result of `table`."""
        self._steady = 0
        """Passes since the table was computed."""

    def add(self, rows: int, ms: float) -> None:
        """Count a verify pass of `rows` tokens."""
        self._newest /= KEPT
        if self._newest > LARGE:
            self._weights = {seen: weight / self._newest for seen, weight in self._weights.items()}
            self._newest = 1.0
        self._weights[rows] = self._weights.get(rows, 0.0) + self._newest
        if rows not in self._means:
            self._means[rows] = SteadyMean(self.known(rows))
        self._means[rows].add(ms)
        self._steady += 1
        if self._means[rows].count <= FIRST or self._steady >= STEADY:
            self._table = []

    def expect(self, costs: Mapping[int, float]) -> None:
        """Set costs in milliseconds by number of tokens."""
        for rows, ms in costs.items():
            self._means[rows] = SteadyMean(ms)
            self._weights[rows] = self._newest
        self._table = []

    def scale(self, one_row: float, more: float) -> None:
        """Scale costs: of one token by `one_row`, of more tokens by `more`."""
        for rows, mean in self._means.items():
            mean.value *= one_row if rows == 1 else more
        self._table = []

    def known(self, rows: int) -> float:
        """Milliseconds of verifying `rows` tokens, measured or interpolated between measured sizes; 0 if unknown."""
        if rows in self._means and self._means[rows].count >= SEEN:
            return self._means[rows].value
        seen = {of: mean.value for of, mean in self._means.items() if mean.count >= SEEN}
        fewer = max((of for of in seen if of < rows), default=0)
        more = min((of for of in seen if of > rows), default=0)
        if not fewer or not more:
            return 0.0
        part = (rows - fewer) / (more - fewer)
        return seen[fewer] + part * (seen[more] - seen[fewer])

    def table(self) -> list[float]:
        """Milliseconds of verifying 0 (nothing) to MAX_DRAFT_LENGTH + 1 tokens, never decreasing."""
        if not self._table:
            self._table, self._steady = self._line(), 0
        return self._table

    def _line(self) -> list[float]:
        """Measured costs, interpolated and extrapolated linearly."""
        known = self._monotone() or [(1, 1.0)]
        (first, low), (last, high) = known[0], known[-1]
        slope = (high - low) / (last - first) if last > first else SLOPE * low / (1 + SLOPE * (first - 1))
        table = [0.0] * (MAX_DRAFT_LENGTH + 2)
        for rows in range(1, first + 1):
            table[rows] = max(low - slope * (first - rows), low / first)
        for (start, less), (end, more) in pairwise(known):
            for rows in range(start, end + 1):
                table[rows] = less + (more - less) * (rows - start) / (end - start)
        for rows in range(last + 1, len(table)):
            table[rows] = high + slope * (rows - last)
        return table

    def _monotone(self) -> list[tuple[int, float]]:
        """Measured costs by size, made monotone: sizes out of order share a mean in which newer ones weigh more."""
        pools: list[tuple[float, float, list[int]]] = []
        for rows, mean in sorted(self._means.items()):
            ms, weight, pooled = mean.value, max(self._weights[rows] / self._newest, LEAST), [rows]
            while pools and pools[-1][0] > ms:
                other, much, before = pools.pop()
                ms = (ms * weight + other * much) / (weight + much)
                weight, pooled = weight + much, before + pooled
            pools.append((ms, weight, pooled))
        return [(rows, ms) for ms, _, pooled in pools for rows in pooled]


@dataclass(frozen=True)
class Usual:
    """Milliseconds of the parts of a step without load."""

    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0


class StepCosts:
    """Costs of steps in milliseconds."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Create empty costs; `clock` returns seconds, on a CPU without those the thread waited (`waiting.py`)."""
        self.clock = clock
        self.measured = 0
        """Measured steps, by which users decide to review costs."""
        self.forget()

    def forget(self) -> None:
        """Forget all costs."""
        self.measured += ALL_NEW
        self.load = LoadFactor()
        self.usual = Usual()
        """Usual times of the last step."""
        self._verifies, self._begun_verifies = VerifyCosts(), VerifyCosts()
        """Costs of passes through all layers, and of passes whose first layers drafting ran."""
        self._drafts: dict[str, Mean] = {}
        """Milliseconds per drafted token, by strategy."""
        self._lines: dict[str, Line] = {}
        """Milliseconds of drafts by length, by strategy."""
        self._other = Mean()
        self.begin()

    def expect(self, verifies: Mapping[int, float], drafts: Mapping[str, Mapping[int, float]]) -> None:
        """Set expected costs in milliseconds: of verifying by number of tokens, of a strategy's drafts by length."""
        self.measured += ALL_NEW
        self._verifies.expect(verifies)
        for strategy, by_length in drafts.items():
            (few, less), (many, more) = min(by_length.items()), max(by_length.items())
            self._drafts[strategy] = Mean(more / many)
            if many > few:
                share = (more - less) / (many - few) / (more / many)
                self._lines[strategy] = line = Line(min(max(0.0, share), 1.0))
                for tokens, ms in by_length.items():
                    line.add(tokens, ms)

    def settle(self, one_row: float, more: float) -> None:
        """Define the current load as 1, and scale costs of bare steps to those in replies."""
        self._verifies.scale(one_row, more)
        self._begun_verifies.scale(one_row, more)
        for mean in (*self._drafts.values(), self._other):
            mean.value *= more
        for line in self._lines.values():
            line.scale(more)
        self.load = LoadFactor()

    def begin(self) -> None:
        """Begin a reply: the time before it belongs to no step."""
        self._since: float | None = None
        self._last = ""

    def add(self, strategy: str, outcome: StepOutcome) -> None:
        """Count one more step, drafted by `strategy`."""
        self.measured += 1
        now, rows = self.clock(), 1 + outcome.drafted
        verify_ms = outcome.verify_ms / self.load.value
        costs = self._begun_verifies if outcome.begun else self._verifies
        if known := costs.known(rows):
            verify_ms = self.load.update(outcome.verify_ms, known)
        costs.add(rows, verify_ms)
        slow = self.load.value
        draft_ms = self._usual_draft(strategy, outcome.drafted, outcome.draft_ms / slow)
        self.usual = Usual(draft_ms, known or verify_ms, self._other.value)
        if self._since is not None:
            other_ms = 1e3 * (now - self._since) - outcome.draft_ms - outcome.verify_ms
            self._other.add(max(0.0, other_ms) / slow)
        self._since = now
        if outcome.drafted:
            mean, ms = self._drafts.setdefault(strategy, Mean()), outcome.draft_ms / outcome.drafted / slow
            # After a prompt or another strategy the time includes reading: it only bounds the cost from above.
            if strategy == self._last or (self._last and not mean.count) or ms < mean.value:
                line = self._lines.setdefault(strategy, Line())
                of_it = line.ms(outcome.drafted, mean.value)
                mean.add(ms)
                whole = outcome.draft_ms / slow
                line.add(outcome.drafted, min(max(whole, of_it / MOST), of_it * RISE) if mean.count > SEEN else whole)
        self._last = strategy

    def _usual_draft(self, strategy: str, drafted: int, ms: float) -> float:
        """Usual milliseconds of a draft; its own `ms` if it includes reading or too few drafts are known."""
        mean = self._drafts.get(strategy)
        if not drafted or mean is None or mean.count < SEEN or strategy != self._last:
            return ms
        return self._lines.get(strategy, Line()).ms(drafted, mean.value)

    def verify_ms(self) -> list[float]:
        """Milliseconds of verifying 0 (nothing) to MAX_DRAFT_LENGTH + 1 tokens, never decreasing."""
        return [ms * self.load.value for ms in self._verifies.table()]

    def draft_token_ms(self, strategy: str) -> float:
        """Milliseconds per drafted token; 0 if unknown."""
        return self._drafts[strategy].value * self.load.value if strategy in self._drafts else 0.0

    def draft_ms(self, strategy: str, tokens: float) -> float:
        """Milliseconds of a draft of `tokens` tokens; 0 if unknown."""
        if strategy not in self._drafts:
            return 0.0
        return self._lines.get(strategy, Line()).ms(tokens, self._drafts[strategy].value) * self.load.value

    def at_once(self, strategy: str) -> bool:
        """Return True if a draft of several tokens takes hardly longer than one of a single token."""
        return 0 < self.draft_ms(strategy, SEVERAL) < AT_ONCE * self.draft_ms(strategy, 1)

    def further_token_ms(self, strategy: str) -> float:
        """Milliseconds that one more token adds to a draft; 0 if unknown."""
        slow = self.load.value
        return self._lines.get(strategy, Line()).further_ms(self.draft_token_ms(strategy) / slow) * slow

    @property
    def other_ms(self) -> float:
        """Milliseconds of a step outside drafting and verifying."""
        return self._other.value * self.load.value
