"""Speedup over plain decoding, with its confidence interval.

Each step reports its load-corrected time, and that of plain decoding for its tokens (`decoding/yardstick.py`). Load on
the machine slows both and cancels out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import isfinite, sqrt

from specchat.engine.events import Step
from specchat.engine.stats import Speedup

MIN_STEPS, MIN_TOKENS = 4, 48
"""Both are needed for a speedup."""
MAX_RELATIVE_WIDTH = 0.1
"""An interval this narrow, relative to the speedup, needs steps alone."""
MAX_PLAIN_ERROR = 0.12
"""No speedup is given while plain decoding's relative error exceeds this: other programs interfered."""
Z_95 = 1.96
"""Half width of a 95 % interval, in standard deviations."""


@dataclass
class Comparison:
    """Sums over steps with known load-corrected times. Times in milliseconds."""

    steps: int = 0
    tokens: int = 0
    own_ms: float = 0.0
    plain_ms: float = 0.0
    _own_squares: float = 0.0
    _plain_squares: float = 0.0
    _products: float = 0.0
    _error_ms: float = 0.0

    @classmethod
    def of(cls, steps: Iterable[Step]) -> "Comparison":
        made = cls()
        for step in steps:
            made.add(step)
        return made

    def add(self, step: Step) -> None:
        own, plain = step.usual_ms, step.plain_ms
        if not (own > 0 and plain > 0 and isfinite(own) and isfinite(plain) and isfinite(step.plain_error)):
            return
        self.steps += 1
        self.tokens += step.emitted
        self.own_ms += own
        self.plain_ms += plain
        self._own_squares += own * own
        self._plain_squares += plain * plain
        self._products += own * plain
        self._error_ms += plain * step.plain_error

    def join(self, other: "Comparison") -> None:
        """Add another comparison's sums."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def estimate(self) -> Speedup | None:
        """The speedup however uncertain; None without steps. Users see `speedup` instead."""
        if not self.steps:
            return None
        times = self.plain_ms / self.own_ms
        # Error of a ratio of sums (Cochran 1977, 6.4), and of the yardstick, which all steps share.
        squares = self._plain_squares - 2 * times * self._products + times * times * self._own_squares
        by_steps = sqrt(max(squares, 0.0) * self.steps / max(self.steps - 1, 1)) / self.own_ms
        by_yardstick = self._error_ms / self.own_ms
        half = Z_95 * sqrt(by_steps * by_steps + by_yardstick * by_yardstick)
        return Speedup(times, max(times - half, 0.0), times + half)

    @property
    def speedup(self) -> Speedup | None:
        """The speedup; None while it is too uncertain."""
        found = self.estimate
        if found is None or self.steps < MIN_STEPS:
            return None
        if self.tokens >= MIN_TOKENS:
            return found if Z_95 * self._error_ms <= MAX_PLAIN_ERROR * self.plain_ms else None
        return found if found.high - found.low < MAX_RELATIVE_WIDTH * found.times else None
