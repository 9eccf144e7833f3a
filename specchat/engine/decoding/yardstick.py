"""Current time of a plain step, measured by plain steps among those that draft.

Its time without load is measured when a pair loads, and in plain replies. Every step updates the load factor, which
scales it to the current time. Load may slow plain steps more or less than drafts: only plain steps show that, so some
are run if too few are known: probes among drafts in a long reply, and repeated steps after the last draft of any reply,
whose tokens are dropped. A short reply on a processor that rested before it has no others. Short ones come in a row
whose first ones do not count, as the CPU's caches still hold data of the draft. No text is processed between repeated
steps, which makes them quicker: plain replies repeat some too, and tell by how much. All results are kept twice: for
recent seconds and this load, and for the pair, as the time measured at loading has an error.

A client takes a step's event before the next step begins. That time is measured at every step, and added to a plain
one's.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, exp, hypot, log

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.means import Mean
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.plain_ratio import NOISE, OFF, PLAIN_STEPS, PlainRatio, Repeated, combined
from specchat.engine.protocol.events import PlainKnown

SHARE, OF_REPLY = 0.01, 0.06
"""Largest cost of probes, as a share of the time since the first one, waits for the user included, and of the
reply's time: more would slow a short reply visibly."""
LAST_MS, MOST_MS = 24.0, 500.0
"""Milliseconds of repeated steps by which a reply may end later, if `OF_REPLY` is less, and if it is more."""
FEWEST, BARE = 4, 8
"""Repeated steps that count below which none is known within `UNSURE`, and those after a plain reply."""
LEAST_COST = 0.25
"""Least cost of a probe, as a share of its time, even if drafting gains nothing."""
NEVER = float("inf")
LOAD_S, LAST_S, RATIO_S = 0.5, 0.1, 20.0
"""Time constants of the load, of its last value, and of the ratio: seconds until a measurement weighs 1/e."""
BETWEEN = 0.05
"""Standard deviation of plain decoding's time between seconds, which no number of steps in the same ones shows."""
MOVED = 0.12
"""Change of a reply's plain time up to which loads that differ between its strategies are errors of their costs."""
LAST_DRAFTS = 4
"""Drafts until one weighs 1/e of the last one in the load of the last drafts, as `LAST_S` may hold a whole reply."""
SOONEST, UNSURE = 3, 0.055
"""Drafts of a reply before a plain step is run, and error of the ratio up to which none is repeated."""
SPIKE = 2.0
"""Largest ratio of a plain step to its expected time that counts."""
EVENT = 0.5
"""Time that a client takes for the event of a plain step, as a share of that of a step with a draft."""
LEAST_LOAD = 0.05
"""Lower bound of the load and of the ratio of plain steps, in case the clock jumps."""
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
        self.keep(exp(-seconds / self._seconds))

    def keep(self, kept: float) -> None:
        """Keep this part of the sums."""
        self.observed *= kept
        self.expected *= kept

    def add(self, observed: float, expected: float) -> None:
        self.observed += observed
        self.expected += expected

    @property
    def load(self) -> float:
        """Ratio of the sums, 1 without any."""
        return max(LEAST_LOAD, self.observed / self.expected) if self.expected else 1.0


class Yardstick:
    """Estimator of plain step times of one pair. Each step must be added to `costs` first."""

    def __init__(self, costs: StepCosts, error: float = OFF) -> None:
        """Create an estimator; `error` is that of plain decoding's time without load, beside drafts'."""
        self._costs = costs
        self._loads: defaultdict[str, Window] = defaultdict(lambda: Window(LOAD_S))
        """Windows by strategy, as the error of expected times differs between strategies."""
        self._last = Window(LAST_S)
        """The load of the last drafts."""
        self._ratios: defaultdict[str, PlainRatio] = defaultdict(lambda: PlainRatio(error))
        self._strategy = self._arm = ""
        """Strategy of the last draft, and the one that it chose."""
        self._sent = Mean()
        """Milliseconds in which a client takes a step's event."""
        self._credit: float | None = None
        """Milliseconds that probes may cost now; None until plain decoding's time is known."""
        self._gain = 1.0
        """Speedup of this reply over plain decoding; it sets the cost of a probe."""
        self._since: float | None = None
        self.begin(0.0)

    def begin(self, plain_ms: float, bare_share: float = 1.0) -> None:
        """Begin a reply; plain decoding takes `plain_ms` per token without load, 0 if unknown.

        A repeated step takes `bare_share` of that.
        """
        self._usual, self._bare_ms = plain_ms, plain_ms * bare_share
        self._cold = max(COLD, ceil(min(SETTLES_MS / plain_ms, PLAIN_STEPS))) if 0 < plain_ms < QUICK_MS else 0
        """Number of plain steps after a draft that do not count."""
        if self._credit is None and plain_ms:
            self._credit = (2 * self._cold + COUNTED) * plain_ms
        self._ended: float | None = None
        """End of the last step of this reply, on the clock."""
        self._gain, self._own, self._plain = 1.0, 0.0, 0.0
        self._verified = Window(NEVER)
        self._lasted, self._tokens = 0.0, 0
        """Milliseconds and tokens of all steps of this reply, without sending their events."""
        self._left = self._settled = 0
        """Plain steps still to probe, and plain steps since the last draft."""
        self._spent = 0.0
        """Milliseconds that probes cost this reply."""
        self._repeated = Repeated()
        self._drafting = defaultdict[str, Window](lambda: Window(NEVER))
        """Loads of this reply's drafts, by strategy of their steps."""
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
    def bare_share(self) -> float:
        """Part of a step of this plain reply that a repeated step takes."""
        if self._repeated.count:
            return self._repeated.mean
        return self._verified.observed / self._lasted if self._lasted else 1.0

    @property
    def load(self) -> float:
        """Load of the machine in the last seconds, 1 if none."""
        return self._loads[self._strategy].load if self._recent else self._costs.load.value

    @property
    def _reply_load(self) -> float:
        """Load of this reply's drafts."""
        whole = Window(NEVER)
        for load in self._drafting.values():
            whole.add(load.observed, load.expected)
        return whole.load

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
        return self._usual * self.load * self._ratio.known(self.load, self._costs.load.value)[0] + self._sent.value

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
        if self._credit < cost or self._spent + cost > OF_REPLY * self._lasted:
            return False
        self._credit -= cost
        self._spent += cost
        self._left = steps - 1
        return True

    def repeats(self) -> bool:
        """Return True if a plain step should be repeated after the last step of a reply."""
        if not self._lasted or self._repeated.error <= UNSURE:
            return False
        if not self._drafts:
            least, enough = self._repeated.spent_ms + self._lasted / self._tokens, self._repeated.count >= BARE
        else:
            least = max(
                self._repeated.spent_ms + self.plain_ms, (self._cold + FEWEST) * self._bare_ms * self._reply_load
            )
            # Long after the last draft the load may differ from that of the drafts.
            enough = not self._usual or self._drafts < SOONEST or self._last.expected < self._usual / 2
            enough = enough or self._ratio.known(self.load, self._costs.load.value)[1] <= UNSURE
        return not enough and least <= min(max(LAST_MS, OF_REPLY * self._lasted), MOST_MS)

    def add_repeated(self, outcome: StepOutcome) -> None:
        """Count a plain step that was repeated after a reply."""
        self._settled += 1
        if not self._drafts:
            self._repeated.add(outcome.verify_ms, min(outcome.verify_ms / (self._lasted / self._tokens), SPIKE))
            return
        load = self._reply_load
        expected = self._bare_ms * load
        counts = self._settled > self._cold and expected > 0
        self._repeated.add(outcome.verify_ms, min(outcome.verify_ms / expected, SPIKE) * load if counts else None)

    def end(self) -> tuple[PlainKnown, ...]:
        """End a reply: return what is known of plain decoding's time now, and keep what repeated steps tell of it."""
        if not self._drafting:
            return ()
        own, loads = self._drafting[self._arm].load, self._drafting.values()
        ratio, error = self._ratio.known(own, own)
        moved = sum(of.expected * (own / of.load - 1) for of in loads)
        alike = abs(moved) <= MOVED * sum(of.expected for of in loads)
        if self._repeated.count:
            last = self._last.load
            seen, unsure = max(LEAST_LOAD, self._repeated.mean / last), hypot(self._repeated.error, log(own / last))
            self._ratio.add(seen, last, own, (NOISE / unsure) ** 2)
            (ratio, error), alike = combined(ratio, error, seen, unsure), True
        return tuple(
            PlainKnown(strategy, (own * ratio * self._usual + self._sent.value) / load.load, hypot(error, BETWEEN))
            for strategy, load in self._drafting.items()
            if alike or strategy == self._arm
        )

    def add(self, strategy: str, outcome: StepOutcome, sent_ms: float = 0.0) -> Measured:
        """Count a step by `strategy` that just ended, processing of its text included.

        The client took the event of the step before in `sent_ms`.
        """
        now = self._costs.clock()
        self._fade(now)
        usual, load = self._costs.usual, self.load
        other_ms = usual.other_ms
        if self._ended is not None:
            other_ms = max(0.0, 1e3 * (now - self._ended) - outcome.draft_ms - outcome.verify_ms)
            self._sent.add(sent_ms if self._settled else EVENT * sent_ms)
        self._ended, lasted = now, outcome.verify_ms + other_ms
        self._verified.add(outcome.verify_ms, usual.verify_ms)
        self._lasted += max(0.0, outcome.draft_ms + lasted - sent_ms)
        self._tokens += len(outcome.tokens)
        if not self._usual:
            return Measured(0.0, 0.0, 0.0)
        self._settled += 1
        if outcome.drafted:
            self._strategy, self._arm, self._settled = strategy, outcome.strategy, 0
            self._drafts += 1
            self._last.keep(exp(-1 / LAST_DRAFTS))
            own = usual.draft_ms + usual.verify_ms + usual.other_ms
            for load_of in (self._loads[strategy], self._drafting[outcome.strategy], self._last):
                load_of.add(outcome.draft_ms + lasted, own)
        elif self._drafts and self._recent and self._settled > self._cold:
            times = max(0.0, lasted - sent_ms) / (self._usual * load)
            self._ratio.add(min(times, SPIKE), load, self._costs.load.value)
        ratio, error = self._ratio.known(load, self._costs.load.value)
        plain, error = self._usual * ratio + self._sent.value / load, hypot(error, BETWEEN)
        if not outcome.drafted:
            own, error = plain * (1 + outcome.draft_ms / lasted) if lasted else plain, 0.0
        self._own += own
        self._plain += plain * len(outcome.tokens)
        self._gain = max(1.0, self._plain / self._own)
        return Measured(own, plain, error)

    def _fade(self, now: float) -> None:
        passed, self._since = 0.0 if self._since is None else max(0.0, now - self._since), now
        if self._credit is not None:
            most = 2 * (self._cold + COUNTED) * self._usual * self.load
            self._credit = min(self._credit + 1e3 * SHARE * passed, max(self._credit, most))
        for load in (*self._loads.values(), self._last):
            load.fade(passed)
        for ratio in self._ratios.values():
            ratio.fade(exp(-passed / RATIO_S))
