"""What plain decoding takes now: measured by plain steps among those that draft.

What a plain step takes where the machine is not slow was measured at load and by plain replies. The load factor, which
every step tells, makes it one of now. Whether plain decoding is slowed alike is told by plain steps alone, so some are
slipped in among drafts where there are too few. Quick ones come in a row, the first of which do not count: then a
processor's caches hold what the draft needed. What they tell is kept twice: as of these seconds and this load, and as
of the pair, for what was measured at load is off by some of it.
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
OFF = 0.08
"""Spread of plain's part of the load before any step told it: what was measured at load is off by as much."""
EVEN, UNEVEN = 0.04, 0.6
"""Spread of the part from one second to another where there is no load, and what another load adds to it: that share of
how much greater it is, by its logarithm."""
LASTING = 0.0001
"""The square of how well the part of all seconds is known at best: what is older counts less."""
FORGETS = 3.0
"""Plain steps under another load count less: by how much greater it was, by its logarithm, times this."""
NOISE, NOISES = 0.1, 4.0
"""Spread of a measurement, which counts as so many of them."""
LEAST_ERROR, BEYOND = 0.04, 0.05
"""Error of the mean of any number of measurements, for the load that they are held against is one for many of them, and
what load adds to it, as with `UNEVEN`."""
SOONEST, FIRST_DRAFTS = 3, 8
"""Drafts of a reply before one is left out, the first time and later: a short reply is not to pay for others."""
SPIKE = 2.0
"""A plain step counts as at most so many times what was expected."""
LEAST_LOAD = 0.05
"""Of a clock that jumped."""
SETTLES_MS, COLD, QUICK_MS, COUNTED = 1.2, 2, 6.0, 2
"""After so long and so many steps a processor's caches are as in plain decoding, busy or not. Plain steps before do not
count where they take less than the third of these, and so many that do count follow."""


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
        self._lasting, self._sure = 1.0, 1 / (OFF * OFF)
        """The part of all seconds, and one over the square of its error."""

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
        tells = 1 / (NOISE * NOISE + EVEN * EVEN + (UNEVEN * log(load)) ** 2)
        self._sure = min(self._sure + tells, 1 / LASTING)
        self._lasting += tells / self._sure * (times - self._lasting)

    def known(self, load: float, newest: float) -> tuple[float, float]:
        """The part under this load, which is that of the `newest` steps soon, and its standard error: what was measured
        lately and what lasts, each by how sure it is."""
        lasting = 1 / self._sure + EVEN * EVEN + (UNEVEN * max(abs(log(load)), abs(log(newest)))) ** 2
        if not self._count:
            return self._lasting, sqrt(lasting)
        mean = self._sum / self._count
        squares = max(0.0, self._squares - self._count * mean * mean)
        spread = (squares + NOISES * NOISE * NOISE) / (self._count + NOISES)
        other_load = UNEVEN * (log(load) - self._loads / self._count)
        least = LEAST_ERROR * LEAST_ERROR + (BEYOND * log(load)) ** 2
        measured = max(spread / self._count, least) + other_load * other_load
        whole = lasting + measured
        return (measured * self._lasting + mean * lasting) / whole, sqrt(lasting * measured / whole)


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
        self._credit: float | None = None
        """Milliseconds that slipped steps may cost by now; None before plain decoding's time was known."""
        self._gain = 1.0
        """Times plain that steps of this reply bring, which tells what a slipped one costs."""
        self._since: float | None = None

    def begin(self, plain_ms: float) -> None:
        """A reply begins. Plain decoding takes `plain_ms` a token where the machine is not slow; 0 where unknown."""
        self._usual = plain_ms
        self._cold = max(COLD, ceil(min(SETTLES_MS / plain_ms, PLAIN_STEPS))) if 0 < plain_ms < QUICK_MS else 0
        """Plain steps after a draft that do not count."""
        if self._credit is None and plain_ms:
            self._credit = (2 * self._cold + COUNTED) * plain_ms
        self._ended: float | None = None
        """When the last step of this reply did."""
        self._gain, self._own, self._plain = 1.0, 0.0, 0.0
        self._verified = Window(NEVER)
        self._lasted, self._tokens = 0.0, 0
        """Milliseconds of its steps, and their tokens."""
        self._left = self._settled = 0
        """Plain steps that are still to be slipped in, and those since the last draft."""
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
        first = FIRST_DRAFTS if self._part.count else SOONEST
        if self._credit is None or not self._usual or self._drafts < first or self._part.count >= PLAIN_STEPS / 2:
            return False
        steps = self._cold + COUNTED if self._cold else 1
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
        self._settled += 1
        if stepped.drafted:
            self._strategy, self._settled = strategy, 0
            self._drafts += 1
            own = usual.draft_ms + usual.verify_ms + usual.other_ms
            self._loads[strategy].add(stepped.draft_ms + lasted, own)
            most = 2 * (self._cold + COUNTED) * self._usual * load
            self._credit = min((self._credit or 0.0) + SHARE * (stepped.draft_ms + lasted), most)
        elif self._drafts and self._recent and self._settled > self._cold:
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
