"""Current time of a plain step, measured by plain steps among those that draft.

Its time without load is measured when a pair loads, and in plain replies. Every step updates the load factor, which
scales it to the current time. Load may slow plain steps more or less than drafts: only plain steps show that, so some
are probed among drafts if too few are known. Short ones come in a row whose first ones do not count, as the CPU's
caches still hold data of the draft. Their result is kept twice: for recent seconds and this load, and for the pair, as
the time measured at loading has an error.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.stepped import Stepped

SHARE, OF_REPLY = 0.01, 0.06
"""Largest cost of probes, as a share of the time since the first one, waits for the user included, and of the
reply's time but for the first where the ratio is unsure: more would slow a short reply visibly."""
FREE_MS = 12.0
"""Cost of a pair's first probes that no reply limits: a first reply may be as short as 50 ms."""
LEAST_COST = 0.25
"""Least cost of a probe, as a share of its time, even if drafting gains nothing."""
NEVER = float("inf")
LOAD_S, RATIO_S = 0.5, 20.0
"""Time constants of the load, and of the ratio: seconds until a measurement weighs 1/e."""
PLAIN_STEPS = 32.0
"""Plain steps after which older ones weigh less; half as many are enough."""
OFF = 0.08
"""Prior standard deviation of the ratio, from the error of the time measured at loading."""
EVEN, UNEVEN = 0.06, 0.5
"""Standard deviation of the ratio between seconds without load, and its increase per unit of the log of the load."""
LASTING = 0.0001
"""Least variance of the lasting ratio, so that older measurements weigh less."""
STEADY = 0.1
"""Change of the log of the load within its time constant up to which a plain step counts fully."""
FORGETS = 3.0
"""Decay of older plain steps per unit of change of the log of the load."""
NOISE, NOISES = 0.1, 4.0
"""Prior standard deviation of a measurement, and its weight in measurements."""
LEAST_ERROR, BEYOND = 0.04, 0.1
"""Least error of a mean of measurements, as many share one load, and its increase per unit of the log of the load."""
SOONEST, UNSURE = 3, 0.055
"""Drafts of a reply before a probe, and error of the ratio from which one is wanted at once."""
SETTLES = 12
"""Most drafts for which the first probes wait while the load changes, as it does on a processor that rested."""
SPIKE = 2.0
"""Largest ratio of a plain step to its expected time that counts."""
LEAST_LOAD = 0.05
"""Lower bound of the load, in case the clock jumps."""
SETTLES_MS, COLD, QUICK_MS, COUNTED = 1.2, 2, 6.0, 2
"""CPU caches settle after `SETTLES_MS` and `COLD` plain steps, which do not count. Only steps below `QUICK_MS` need
that; `COUNTED` steps follow, which count."""


@dataclass(frozen=True)
class Measured:
    """Load-corrected times of a step, and of plain decoding per token; fields as in `events.Step`."""

    usual_ms: float
    plain_ms: float
    plain_error: float


class Window:
    """Exponentially decaying sums of observed and expected milliseconds."""

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


class PlainRatio:
    """Ratio of plain steps to their time expected from the load, 1 at first, with its error."""

    def __init__(self) -> None:
        self._count = self._sum = self._squares = self._loads = 0.0
        self._lasting, self._sure = 1.0, 1 / (OFF * OFF)
        """The lasting ratio, and its inverse variance."""

    @property
    def count(self) -> float:
        """Decayed number of plain steps."""
        return self._count

    def fade(self, kept: float) -> None:
        self._count *= kept
        self._sum *= kept
        self._squares *= kept
        self._loads *= kept

    def add(self, times: float, load: float, newest: float) -> None:
        """Count a plain step under this `load`, which is `newest` soon, that took `times` its expected time."""
        other_load = log(load) - self._loads / self._count if self._count else 0.0
        self.fade((1 - 1 / PLAIN_STEPS) * exp(-FORGETS * abs(other_load)))
        # A change of load shifts the expected time by the same factor.
        changes = max(0.0, abs(log(load / newest)) - STEADY)
        weight = NOISE * NOISE / (NOISE * NOISE + changes * changes)
        self._count += weight
        self._sum += weight * times
        self._squares += weight * times * times
        self._loads += weight * log(load)
        tells = weight / (NOISE * NOISE + (UNEVEN * log(load)) ** 2)
        self._sure = min(self._sure + tells, 1 / LASTING)
        self._lasting += tells / self._sure * (times - self._lasting)

    def known(self, load: float, newest: float) -> tuple[float, float]:
        """Return the ratio under this `load`, which is `newest` soon, and its standard error.

        The mean of recent measurements and the lasting ratio are combined by inverse variance.
        """
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
    """Estimator of plain step times of one pair. Each step must be added to `costs` first."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._loads: defaultdict[str, Window] = defaultdict(lambda: Window(LOAD_S))
        """Windows by strategy, as the error of expected times differs between strategies."""
        self._ratios: defaultdict[str, PlainRatio] = defaultdict(PlainRatio)
        self._strategy = ""
        """Strategy of the last draft."""
        self._credit: float | None = None
        """Milliseconds that probes may cost now; None until plain decoding's time is known."""
        self._free = FREE_MS
        """Milliseconds of the credit that no reply limits."""
        self._gain = 1.0
        """Speedup of this reply over plain decoding; it sets the cost of a probe."""
        self._since: float | None = None
        self.begin(0.0)

    def begin(self, plain_ms: float) -> None:
        """Begin a reply; plain decoding takes `plain_ms` per token without load, 0 if unknown."""
        self._usual = plain_ms
        self._cold = max(COLD, ceil(min(SETTLES_MS / plain_ms, PLAIN_STEPS))) if 0 < plain_ms < QUICK_MS else 0
        """Number of plain steps after a draft that do not count."""
        if self._credit is None and plain_ms:
            self._credit = max((2 * self._cold + COUNTED) * plain_ms, FREE_MS)
        self._ended: float | None = None
        """End of the last step of this reply, on the clock."""
        self._gain, self._own, self._plain = 1.0, 0.0, 0.0
        self._verified = Window(NEVER)
        self._lasted, self._tokens = 0.0, 0
        """Milliseconds and tokens of all steps of this reply."""
        self._left = self._settled = 0
        """Plain steps still to probe, and plain steps since the last draft."""
        self._spent = 0.0
        """Milliseconds that probes cost this reply."""
        self._drafts = 0
        """Steps of this reply with a draft: in a plain reply no draft measures the load at the same time."""

    @property
    def slowed(self) -> float:
        """Slowdown of the target's passes in this reply; 1 without any."""
        return self._verified.observed / self._verified.expected if self._verified.expected else 1.0

    @property
    def usual_speed(self) -> float:
        """Load-corrected tokens per second of this reply; 0 before its first step."""
        return 1e3 * self._tokens / self._lasted * self.slowed if self._lasted else 0.0

    @property
    def load(self) -> float:
        """Load of the machine in the last seconds, 1 if none."""
        load = self._loads[self._strategy]
        return max(LEAST_LOAD, load.observed / load.expected) if self._recent else self._costs.load.value

    @property
    def _recent(self) -> bool:
        """True if drafts of the last seconds suffice to measure the load."""
        return self._loads[self._strategy].expected > self._usual > 0

    @property
    def _ratio(self) -> PlainRatio:
        return self._ratios[self._strategy]

    @property
    def plain_ms(self) -> float:
        """Milliseconds of a plain token under the current load; 0 if unknown."""
        return self._usual * self.load * self._ratio.known(self.load, self._costs.load.value)[0]

    def due(self) -> bool:
        """Return True if the next step should be plain."""
        if self._left:
            self._left -= 1
            return True
        ratio = self._ratio
        if self._credit is None or not self._usual or self._drafts < SOONEST or ratio.count >= PLAIN_STEPS / 2:
            return False
        steps = self._cold + COUNTED if self._cold else 1
        cost = steps * self.plain_ms * max(LEAST_COST, 1 - 1 / self._gain)
        load, newest = self.load, self._costs.load.value
        if self._free > 0 and self._drafts < SETTLES and abs(log(load / newest)) > 2 * STEADY:
            return False
        first = (not self._spent or self._free > 0) and ratio.known(load, newest)[1] > UNSURE
        if self._credit < cost or not (first or self._spent + cost <= OF_REPLY * self._lasted):
            return False
        self._free -= cost
        self._credit -= cost
        self._spent += cost
        self._left = steps - 1
        return True

    def add(self, strategy: str, stepped: Stepped) -> Measured:
        """Count a step by `strategy` that just ended, processing of its text included."""
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
        elif self._drafts and self._recent and self._settled > self._cold:
            self._ratio.add(min(lasted / (self._usual * load), SPIKE), load, self._costs.load.value)
        ratio, error = self._ratio.known(load, self._costs.load.value)
        plain = self._usual * ratio
        if not stepped.drafted:
            own, error = plain * (1 + stepped.draft_ms / lasted) if lasted else plain, 0.0
        self._own += own
        self._plain += plain * len(stepped.tokens)
        self._gain = max(1.0, self._plain / self._own)
        return Measured(own, plain, error)

    def _fade(self, now: float) -> None:
        passed, self._since = 0.0 if self._since is None else max(0.0, now - self._since), now
        if self._credit is not None:
            most = 2 * (self._cold + COUNTED) * self._usual * self.load
            self._credit = min(self._credit + 1e3 * SHARE * passed, max(self._credit, most))
        for load in self._loads.values():
            load.fade(passed)
        for ratio in self._ratios.values():
            ratio.fade(exp(-passed / RATIO_S))
