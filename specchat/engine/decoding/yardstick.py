"""What plain decoding takes now: measured by plain steps among those that draft.

What a plain step takes where the machine is not slow was measured at load and by plain replies. The load factor, which
every step tells, makes it one of now. Whether plain decoding is slowed alike is told by plain steps alone, so some are
slipped in among drafts where there are too few. Quick ones come in a row, of which the last one counts: at the first,
a processor's caches hold what the draft needed, and its clock is as slow as many rows made it.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

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
EVEN, UNEVEN = 0.05, 0.35
"""Spread of plain's part of the load where there is none, and what another load adds to it: that share of how much
greater it is, by its logarithm."""
FORGETS = 3.0
"""Plain steps under another load count less: by how much greater it was, by its logarithm, times this."""
NOISE, NOISES = 0.15, 4.0
"""Spread of a measurement, which counts as so many of them."""
LEAST_ERROR = 0.06
"""Of the mean of any number of measurements: the load that they are held against is one for many of them."""
BEYOND = 0.05
"""What load adds to that, as with `UNEVEN`."""
FIRST_DRAFTS = 8
"""Drafts of a reply before one is left out: a short reply is not to pay for others."""
SPIKE = 2.0
"""A plain step counts as at most so many times what was expected."""
LEAST_LOAD = 0.05
"""Of a clock that jumped."""
SETTLES_MS = 3.0
"""After so long a processor's caches and its clock are as in plain decoding."""


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
    """How much slower plain steps are than the load says: 1 before any was seen, and surer with each."""

    def __init__(self) -> None:
        self._count = self._sum = self._squares = self._loads = 0.0

    @property
    def count(self) -> float:
        """Plain steps that it is known by, older ones counting less."""
        return self._count

    def fade(self, kept: float) -> None:
        self._count *= kept
        self._sum *= kept
        self._squares *= kept
        self._loads *= kept

    def add(self, times: float, load: float) -> None:
        """A plain step, under this load, took so many times what the load says."""
        other_load = log(load) - self._loads / self._count if self._count else 0.0
        self.fade((1 - 1 / PLAIN_STEPS) * exp(-FORGETS * abs(other_load)))
        self._count += 1
        self._sum += times
        self._squares += times * times
        self._loads += log(load)

    def known(self, load: float, newest: float) -> tuple[float, float]:
        """The part under this load, which is that of the `newest` steps soon, and its standard error: what was measured
        and what is assumed, each by how sure it is."""
        assumed = EVEN * EVEN + (UNEVEN * max(abs(log(load)), abs(log(newest)))) ** 2
        if self._count <= 1:
            return 1.0, sqrt(assumed)
        mean = self._sum / self._count
        squares = max(0.0, self._squares - self._count * mean * mean)
        spread = (squares + NOISES * NOISE * NOISE) / (self._count + NOISES)
        other_load = UNEVEN * (log(load) - self._loads / self._count)
        least = LEAST_ERROR * LEAST_ERROR + (BEYOND * log(load)) ** 2
        measured = max(spread / self._count, least) + other_load * other_load
        whole = assumed + measured
        return (measured + mean * assumed) / whole, sqrt(assumed * measured / whole)


class Yardstick:
    """Of one pair. Each step is added to `costs` first."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._loads: defaultdict[str, Window] = defaultdict(lambda: Window(LOAD_S))
        """By strategy: the expected time of one may be off by more than that of another."""
        self._parts: defaultdict[str, Part] = defaultdict(Part)
        self._strategy = ""
        """Of the last draft."""
        self._usual = 0.0
        self._credit = 0.0
        """Milliseconds that slipped steps may cost by now."""
        self._gain = 1.0
        """Times plain that steps of this reply bring, which tells what a slipped one costs."""
        self._since: float | None = None

    def begin(self, plain_ms: float) -> None:
        """A reply begins. Plain decoding takes `plain_ms` a token where the machine is not slow; 0 where unknown."""
        self._usual = plain_ms
        self._ended: float | None = None
        """When the last step of this reply did."""
        self._gain, self._own, self._plain = 1.0, 0.0, 0.0
        self._verified = Window(NEVER)
        self._lasted, self._tokens = 0.0, 0
        """Milliseconds of its steps, and their tokens."""
        self._left, self._settled_ms = 0, 0.0
        """Plain steps that are still to be slipped in, and what those since the last draft took."""
        self._drafts = 0
        """Steps of this reply that had a draft: a plain reply is of other seconds than the drafts before it."""

    @property
    def slowed(self) -> float:
        """How many times as slow as usual the target's passes of this reply were; 1 without any."""
        return self._verified.observed / self._verified.expected if self._verified.expected else 1.0

    @property
    def usual_speed(self) -> float:
        """Tokens per second of this reply, had the machine not been slow; 0 before its first step."""
        return 1e3 * self._tokens / self._lasted * self.slowed if self._lasted else 0.0

    @property
    def load(self) -> float:
        """How many times as slow the machine is as usual, in the last seconds."""
        load = self._loads[self._strategy]
        return max(LEAST_LOAD, load.observed / load.expected) if self._recent else self._costs.load.value

    @property
    def _recent(self) -> bool:
        """Whether drafts of the last seconds tell the load: what was seen before a pause counts little."""
        return self._loads[self._strategy].expected > self._usual > 0

    @property
    def _part(self) -> Part:
        return self._parts[self._strategy]

    @property
    def plain_ms(self) -> float:
        """Milliseconds of a plain token now; 0 where they are unknown."""
        return self._usual * self.load * self._part.known(self.load, self._costs.load.value)[0]

    def due(self) -> bool:
        """Whether the next step is to draft nothing."""
        if self._left:
            self._left -= 1
            return True
        if not self._usual or self._drafts < FIRST_DRAFTS or self._part.count >= PLAIN_STEPS / 2:
            return False
        steps = ceil(SETTLES_MS / self.plain_ms)
        cost = steps * self.plain_ms * max(LEAST_COST, 1 - 1 / self._gain)
        if self._credit < cost:
            return False
        self._credit -= cost
        self._left = steps - 1
        return True

    def add(self, strategy: str, stepped: Stepped) -> Measured:
        """A step, its text included, ended, whose draft was of `strategy`."""
        now = self._costs.clock()
        self._fade(now)
        usual, load = self._costs.usual, self.load
        other_ms = usual.other_ms
        if self._ended is not None:
            other_ms = max(0.0, 1e3 * (now - self._ended) - stepped.draft_ms - stepped.verify_ms)
        self._ended, lasted = now, stepped.verify_ms + other_ms
        self._verified.add(stepped.verify_ms, usual.verify_ms)
        self._lasted += stepped.draft_ms + lasted
        self._tokens += len(stepped.tokens)
        if not self._usual:
            return Measured(0.0, 0.0, 0.0)
        self._settled_ms += lasted
        if stepped.drafted:
            self._strategy, self._settled_ms = strategy, 0.0
            self._drafts += 1
            own = usual.draft_ms + usual.verify_ms + usual.other_ms
            self._loads[strategy].add(stepped.draft_ms + lasted, own)
            most = 2 * (SETTLES_MS + self._usual * load)
            self._credit = min(self._credit + SHARE * (stepped.draft_ms + lasted), most)
        elif self._drafts and self._recent and self._settled_ms >= SETTLES_MS:
            self._part.add(min(lasted / (self._usual * load), SPIKE), load)
        part, error = self._part.known(load, self._costs.load.value)
        plain = self._usual * part
        if not stepped.drafted:
            own, error = plain + stepped.draft_ms / load, 0.0
        self._own += own
        self._plain += plain * len(stepped.tokens)
        self._gain = max(1.0, self._plain / self._own)
        return Measured(own, plain, error)

    def _fade(self, now: float) -> None:
        passed, self._since = 0.0 if self._since is None else max(0.0, now - self._since), now
        for load in self._loads.values():
            load.fade(passed)
        for part in self._parts.values():
            part.fade(exp(-passed / PART_S))
