"""Speedup over plain decoding, with its confidence interval.

Each step reports its load-corrected time, and that of plain decoding for its tokens (`decoding/yardstick.py`). Load on
the machine slows both and cancels out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field
from math import exp, hypot, isfinite, sqrt

from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.stats import Speedup

MIN_STEPS, MIN_TOKENS = 4, 32
"""Both are needed for a speedup."""
MAX_RELATIVE_WIDTH = 0.1
"""An interval this narrow, relative to the speedup, needs steps alone."""
MAX_PLAIN_ERROR = 0.2
"""No speedup is given unless plain decoding's time is known within this share in 99 of 100 cases."""
MAX_ROUGH_ERROR = 0.5
"""The same for a rough one, which is shown with its interval alone."""
Z_95, Z_99 = 1.96, 2.58
"""Half widths of intervals of 95 % and 99 %, in standard deviations."""
MAX_EXPONENT = 700.0
"""The largest power of e, about, that a float holds."""
BETTER = 1.25
"""Ratio of errors from which a step's knowledge of plain decoding's time replaces that of the steps before it."""


@dataclass
class PlainTime:
    """Plain decoding's time for the tokens of one strategy's steps, in milliseconds.

    A step that knows it better tells it for those before, too: the first ones of a reply come before any plain step.
    """

    _joined_ms: float = 0.0
    _joined_error: float = 0.0
    _known: list[tuple[int, float, float]] = field(default_factory=list)
    """Tokens, milliseconds and relative error of steps in a row that know it alike; errors grow."""

    def add(self, tokens: int, ms: float, error: float) -> None:
        """Count a step whose tokens take plain decoding `ms`, with this relative error; a plain step has none."""
        if not error:
            self._joined_ms += ms
        else:
            self.learn(ms / tokens, error, BETTER, tokens)

    def learn(self, token_ms: float, error: float, better: float = 1.0, tokens: int = 0) -> None:
        """Count `tokens` that take plain decoding `token_ms` each, and those before with `better` times its error."""
        while self._known and self._known[-1][2] > better * error:
            tokens += self._known.pop()[0]
        if not tokens:
            return
        ms = tokens * token_ms
        if self._known and self._known[-1][2] * BETTER >= error:
            more, its_ms, its_error = self._known.pop()
            error = (ms * error + its_ms * its_error) / (ms + its_ms)
            tokens, ms = tokens + more, ms + its_ms
        self._known.append((tokens, ms, error))

    def join(self, other: "PlainTime") -> None:
        """Add the time of other replies."""
        self._joined_ms += other.ms
        self._joined_error += other.error_ms

    @property
    def ms(self) -> float:
        return self._joined_ms + sum(ms for _, ms, _ in self._known)

    @property
    def error_ms(self) -> float:
        """Standard error of `ms`, which all steps share."""
        return self._joined_error + sum(ms * error for _, ms, error in self._known)


@dataclass
class Comparison:
    """Sums over steps with known load-corrected times. Times in milliseconds."""

    steps: int = 0
    tokens: int = 0
    own_ms: float = 0.0
    _own_squares: float = 0.0
    _plain_squares: float = 0.0
    _products: float = 0.0
    _plain: defaultdict[str, PlainTime] = field(default_factory=lambda: defaultdict(PlainTime))
    """By strategy, as the yardstick measures it."""

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
        self._plain[step.strategy].add(step.emitted, plain, step.plain_error)
        self._own_squares += own * own
        self._plain_squares += plain * plain
        self._products += own * plain
        for known in step.plain_known:
            if known.token_ms > 0 and known.error > 0 and isfinite(known.token_ms) and isfinite(known.error):
                self._plain[known.strategy].learn(known.token_ms, known.error)

    def join(self, other: "Comparison") -> None:
        """Add another comparison's sums."""
        for name in ("steps", "tokens", "own_ms", "_own_squares", "_plain_squares", "_products"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for strategy, plain in other._plain.items():
            self._plain[strategy].join(plain)

    @property
    def plain_ms(self) -> float:
        return sum(plain.ms for plain in self._plain.values())

    @property
    def _error_ms(self) -> float:
        return sum(plain.error_ms for plain in self._plain.values())

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
        # Of the logarithm (delta method), as a ratio of times is above 0 however little is known.
        factor = exp(min(Z_95 * hypot(by_steps, by_yardstick) / times, MAX_EXPONENT))
        return Speedup(times, times / factor, times * factor)

    @property
    def speedup(self) -> Speedup | None:
        """The speedup; None while it is too uncertain."""
        found = self.estimate
        if found is None or self.steps < MIN_STEPS or self.tokens >= MIN_TOKENS:
            return self._within(MAX_PLAIN_ERROR)
        return found if found.high - found.low < MAX_RELATIVE_WIDTH * found.times else None

    @property
    def rough(self) -> Speedup | None:
        """The speedup of a machine whose load moves; its interval has to be shown beside it."""
        return self._within(MAX_ROUGH_ERROR)

    def _within(self, error: float) -> Speedup | None:
        """The speedup of enough steps, if plain decoding's time is known within this share in 99 of 100 cases."""
        enough = self.steps >= MIN_STEPS and self.tokens >= MIN_TOKENS
        return self.estimate if enough and Z_99 * self._error_ms <= error * self.plain_ms else None
