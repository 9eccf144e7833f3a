"""Sums of observed and expected times: decaying ones, and those of one reply."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import exp

from specchat.engine.decoding.plain_ratio import Repeated

LEAST_LOAD = 0.05
"""Lower bound of the load and of the ratio of plain steps, in case the clock jumps."""
NEVER = float("inf")


class Window:
    """Exponentially decaying sums of observed and expected milliseconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.observed = self.expected = 0.0

    def fade(self, seconds: float) -> None:
        self.keep(exp(-seconds / self._seconds))

    def keep(self, factor: float) -> None:
        """Keep this part of the sums."""
        self.observed *= factor
        self.expected *= factor

    def add(self, observed: float, expected: float) -> None:
        self.observed += observed
        self.expected += expected

    @property
    def load(self) -> float:
        """Ratio of the sums, 1 without any."""
        return max(LEAST_LOAD, self.observed / self.expected) if self.expected else 1.0


@dataclass
class ReplyTimes:
    """Times of one reply, in milliseconds.

    Attributes:
        ended: end of its last step in seconds, on the clock.
        own: load-corrected time of its steps.
        plain: load-corrected time in which plain decoding would write its tokens.
        verified: verifying, observed and expected.
        lasted: time of all steps, without sending their events.
        tokens: tokens of all steps.
        settled: plain steps since the last draft.
        repeated: steps repeated after it.
        drafting: loads of its drafts, by strategy of their steps.
        drafts: steps with a draft; in a plain reply no draft measures the load at the same time.
    """

    ended: float | None = None
    own: float = 0.0
    plain: float = 0.0
    verified: Window = field(default_factory=lambda: Window(NEVER))
    lasted: float = 0.0
    tokens: int = 0
    settled: int = 0
    repeated: Repeated = field(default_factory=Repeated)
    drafting: defaultdict[str, Window] = field(default_factory=lambda: defaultdict(lambda: Window(NEVER)))
    drafts: int = 0

    @property
    def gain(self) -> float:
        """Speedup over plain decoding; it sets the cost of a probe."""
        return max(1.0, self.plain / self.own) if self.own else 1.0

    @property
    def load(self) -> float:
        """Load of its drafts."""
        whole = Window(NEVER)
        for load in self.drafting.values():
            whole.add(load.observed, load.expected)
        return whole.load
