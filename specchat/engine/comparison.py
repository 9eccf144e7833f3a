"""How fast steps were beside plain decoding: the one place where a multiplier is worked out.

Each step tells what it takes, and what plain decoding takes for its tokens, where the machine is not slow
(`decoding/yardstick.py`). What slows the machine meanwhile slows both and cancels out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import isfinite, sqrt

from specchat.engine.api import Speedup, Step

STEPS, TOKENS = 4, 48
"""Enough of both to tell a multiplier,"""
NARROW = 0.1
"""or of steps alone where its interval is no wider than this share of it."""
CLOSE = 0.13
"""None is told while plain's own time may be further off than this, whatever the steps: then other programs came."""
DEVIATIONS = 1.96
"""Half of an interval, in standard deviations: 95 %."""


@dataclass
class Comparison:
    """Sums over steps, of which those without a yardstick are left out. Times in milliseconds."""

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
        """Take in what another one summed."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def estimate(self) -> Speedup | None:
        """Times plain as far as it is known; None without any step. It is to be shown only as `speedup`."""
        if not self.steps:
            return None
        times = self.plain_ms / self.own_ms
        # Of a ratio of sums (Cochran 1977, 6.4), and of the yardstick, which is one for all steps.
        squares = self._plain_squares - 2 * times * self._products + times * times * self._own_squares
        by_steps = sqrt(max(squares, 0.0) * self.steps / max(self.steps - 1, 1)) / self.own_ms
        by_yardstick = self._error_ms / self.own_ms
        half = DEVIATIONS * sqrt(by_steps * by_steps + by_yardstick * by_yardstick)
        return Speedup(times, max(times - half, 0.0), times + half)

    @property
    def speedup(self) -> Speedup | None:
        """Times plain; None while too little is known to tell it."""
        found = self.estimate
        if found is None or self.steps < STEPS:
            return None
        if self.tokens >= TOKENS:
            return found if DEVIATIONS * self._error_ms <= CLOSE * self.plain_ms else None
        return found if found.high - found.low < NARROW * found.times else None
