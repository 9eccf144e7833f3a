"""What plain decoding takes now: measured by plain steps among those that draft.

What a plain step takes where the machine is not slow was measured at load and by plain replies. The load factor, which
every step tells, makes it one of now. Whether plain decoding is slowed alike is told by plain steps alone, so one is
slipped in among drafts where there are too few.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp, sqrt

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.stepped import Stepped

SHARE = 0.01
"""Share of the time of drafted steps that slipped ones may cost."""
LEAST_COST = 0.25
"""A slipped step costs at least so much of itself: where drafting brings nothing it still says little new."""
NEVER = float("inf")
LOAD_S, PART_S = 0.5, 20.0
"""Seconds after which the load, and how much of it is plain's, weighs a third."""
PLAIN_STEPS = 32.0
"""Plain steps that are enough, and beyond which older ones weigh less."""
TRUST, NOISE, NOISES = 0.15, 0.15, 4.0
"""Spread of plain's part of the load, before it was measured, and of a measurement, which counts as so many of them."""
LEAST_ERROR = 0.07
"""Of the mean of any number of measurements: the load that they are held against is one for many of them."""
FIRST_DRAFTS = 8
"""Drafts of a reply before one is left out: a short reply is not to pay for others."""
SPIKE = 2.0
"""A plain step counts as at most so many times what was expected."""
SLIPPED_EVERY = 3
"""Drafts to a plain step, where what slipped ones take is measured."""


@dataclass(frozen=True)
class Measured:
    """As in `api.Step`: what a step and its tokens by plain decoding take where the machine is not slow."""

    usual_ms: float
    plain_ms: float
    plain_error: float


class Window:
    """A sum of observed and expected milliseconds in which what is older than some seconds counts less."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.observed = self.expected = 0.0

    def fade(self, seconds: float) -> None:
        kept = exp(-seconds / self._seconds)
        self.observed *= kept
        self.expected *= kept

    def add(self, observed: float, expected: float) -> None:
        self.observed += observed
        self.expected += expected


class Part:
    """How much slower plain steps are than the load factor says: 1 before any was seen, and surer with each."""

    def __init__(self) -> None:
        self._count = self._sum = self._squares = 0.0

    @property
    def count(self) -> float:
        """Plain steps that it is known by, older ones counting less."""
        return self._count

    def fade(self, kept: float) -> None:
        self._count *= kept
        self._sum *= kept
        self._squares *= kept

    def add(self, times: float) -> None:
        self.fade(1 - 1 / PLAIN_STEPS)
        self._count += 1
        self._sum += times
        self._squares += times * times

    @property
    def known(self) -> tuple[float, float]:
        """The part and its standard error: what was measured and what is assumed, each by how sure it is."""
        assumed = 1 / (TRUST * TRUST)
        if self._count <= 1:
            return 1.0, TRUST
        mean = self._sum / self._count
        squares = max(0.0, self._squares - self._count * mean * mean)
        spread = (squares + NOISES * NOISE * NOISE) / (self._count + NOISES)
        sure = min(self._count / spread, 1 / (LEAST_ERROR * LEAST_ERROR))
        return (assumed + mean * sure) / (assumed + sure), 1 / sqrt(assumed + sure)


class Yardstick:
    """Of one pair. It is told of each step after `costs` were."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._loads: defaultdict[str, Window] = defaultdict(lambda: Window(LOAD_S))
        """By family of the drafts: what one is expected to take may be off by more than another."""
        self._parts: defaultdict[str, Part] = defaultdict(Part)
        self._family = ""
        """Of the last draft."""
        self._usual = 0.0
        self._credit = 0.0
        """Milliseconds that slipped steps may cost by now."""
        self._gain = 1.0
        """Times plain that steps of this reply bring, which tells what a slipped one costs."""
        self._since: float | None = None
        self._slipping, self._asked = False, 0
        self.cold: dict[str, float] = {}
        """Times that a plain step after drafts of a family takes as long as one after others like it, as measured."""

    @contextmanager
    def slipping(self) -> Iterator[None]:
        """Slip in a plain step after every few drafts."""
        self._slipping = True
        try:
            yield
        finally:
            self._slipping = False

    def begin(self, plain_ms: float) -> None:
        """A reply begins. Plain decoding takes `plain_ms` a token where the machine is not slow; 0 where unknown."""
        self._usual = plain_ms
        self._gain, self._own, self._plain = 1.0, 0.0, 0.0
        self._verified = Window(NEVER)
        self._drafts = 0
        """Steps of this reply that had a draft: a plain reply is of other seconds than the drafts before it."""

    @property
    def slowed(self) -> float:
        """How many times as slow as usual the target's passes of this reply were; 1 without any."""
        return self._verified.observed / self._verified.expected if self._verified.expected else 1.0

    @property
    def load(self) -> float:
        """How many times as slow the machine is as usual, in the last seconds."""
        load = self._loads[self._family]
        return load.observed / load.expected if self._recent else self._costs.slowness.value

    @property
    def _recent(self) -> bool:
        """Whether drafts of the last seconds tell the load: what was seen before a pause counts little."""
        return self._loads[self._family].expected > self._usual > 0

    @property
    def _part(self) -> Part:
        return self._parts[self._family]

    @property
    def plain_ms(self) -> float:
        """Milliseconds of a plain token now; 0 where they are unknown."""
        return self._usual * self.load * self._part.known[0]

    def due(self) -> bool:
        """Whether the next step is to draft nothing."""
        if self._slipping:
            self._asked += 1
            return self._asked % SLIPPED_EVERY == 0
        if not self._usual or self._drafts < FIRST_DRAFTS or self._part.count >= PLAIN_STEPS / 2:
            return False
        cost = self.plain_ms * max(LEAST_COST, 1 - 1 / self._gain)
        if self._credit < cost:
            return False
        self._credit -= cost
        return True

    def add(self, family: str, stepped: Stepped, other_ms: float) -> Measured:
        """A step ended, whose draft was of `family`, that took `other_ms` besides drafting and verifying."""
        self._fade()
        usual, load = self._costs.usual, self.load
        self._verified.add(stepped.verify_ms, usual.verify_ms)
        if not self._usual:
            return Measured(0.0, 0.0, 0.0)
        lasted = stepped.verify_ms + other_ms
        if stepped.drafted:
            self._family = family
            self._drafts += 1
            own = usual.draft_ms + usual.verify_ms + usual.other_ms
            self._loads[family].add(stepped.draft_ms + lasted, own)
            self._credit = min(self._credit + SHARE * (stepped.draft_ms + lasted), 2 * self._usual * load)
        elif self._drafts and self._recent and not self._slipping:
            expected = self._usual * load * self.cold.get(self._family, 1.0)
            self._part.add(min(lasted / expected, SPIKE))
        part, error = self._part.known
        plain = self._usual * part
        if not stepped.drafted:
            own, error = plain + stepped.draft_ms / load, 0.0
        self._own += own
        self._plain += plain * len(stepped.tokens)
        self._gain = max(1.0, self._plain / self._own)
        return Measured(own, plain, error)

    def _fade(self) -> None:
        now = self._costs.clock()
        passed, self._since = 0.0 if self._since is None else max(0.0, now - self._since), now
        for load in self._loads.values():
            load.fade(passed)
        for part in self._parts.values():
            part.fade(exp(-passed / PART_S))
