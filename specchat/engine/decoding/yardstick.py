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
from specchat.engine.decoding.plain_ratio import NOISE, OFF, PLAIN_STEPS, PlainRatio, combined
from specchat.engine.decoding.reply_times import LEAST_LOAD, ReplyTimes, Window
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
SETTLES_MS, COLD, QUICK_MS, COUNTED = 1.2, 2, 6.0, 2
"""CPU caches settle after `SETTLES_MS` and `COLD` plain steps, which do not count. Only steps below `QUICK_MS` need
that; `COUNTED` steps follow, which count."""


@dataclass(frozen=True)
class PlainStep:
    """Milliseconds of a plain step without load, and of a repeated one; `cold` steps after a draft do not count."""

    ms: float
    bare_ms: float
    cold: int

    @classmethod
    def of(cls, ms: float, bare_share: float) -> "PlainStep":
        cold = max(COLD, ceil(min(SETTLES_MS / ms, PLAIN_STEPS))) if 0 < ms < QUICK_MS else 0
        return cls(ms, ms * bare_share, cold)


@dataclass
class Probes:
    """Plain steps among those that draft.

    Attributes:
        credit: milliseconds that they may cost now; None until plain decoding's time is known.
        left: steps of the current probe still to run.
        spent: milliseconds that they cost this reply.
    """

    credit: float | None = None
    left: int = 0
    spent: float = 0.0


@dataclass(frozen=True)
class Measured:
    """Load-corrected times of a step, and of plain decoding per token; fields as in `events.Step`."""

    usual_ms: float = 0.0
    plain_ms: float = 0.0
    plain_error: float = 0.0


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
        self._probes = Probes()
        self._since: float | None = None
        self.begin(0.0)

    def begin(self, plain_ms: float, bare_share: float = 1.0) -> None:
        """Begin a reply; plain decoding takes `plain_ms` per token without load, 0 if unknown.

        A repeated step takes `bare_share` of that.
        """
        self._step = PlainStep.of(plain_ms, bare_share)
        self._probes.left, self._probes.spent = 0, 0.0
        if self._probes.credit is None and plain_ms:
            self._probes.credit = (2 * self._step.cold + COUNTED) * plain_ms
        self._reply = ReplyTimes()

    @property
    def slowed(self) -> float:
        """Slowdown of the target's passes in this reply; 1 without any."""
        reply = self._reply
        return reply.verified.observed / reply.verified.expected if reply.verified.expected else 1.0

    @property
    def usual_speed(self) -> float:
        """Load-corrected tokens per second of this reply; 0 before its first step."""
        reply = self._reply
        return 1e3 * reply.tokens / reply.lasted * self.slowed if reply.lasted else 0.0

    @property
    def bare_share(self) -> float:
        """Part of a step of this plain reply that a repeated step takes."""
        reply = self._reply
        if reply.repeated.count:
            return reply.repeated.mean
        return reply.verified.observed / reply.lasted if reply.lasted else 1.0

    @property
    def load(self) -> float:
        """Load of the machine in the last seconds, 1 if none."""
        return self._loads[self._strategy].load if self._recent else self._costs.load.value

    @property
    def _recent(self) -> bool:
        """True if drafts of the last seconds suffice to measure the load."""
        return self._loads[self._strategy].expected > self._step.ms > 0

    @property
    def _ratio(self) -> PlainRatio:
        return self._ratios[self._strategy]

    @property
    def plain_ms(self) -> float:
        """Milliseconds of a plain token under the current load; 0 if unknown."""
        return self._step.ms * self.load * self._ratio.known(self.load, self._costs.load.value)[0] + self._sent.value

    def due(self) -> bool:
        """Return True if the next step should be plain."""
        if self._probes.left:
            self._probes.left -= 1
            return True
        ratio, reply, probes = self._ratio, self._reply, self._probes
        if probes.credit is None or not self._step.ms or reply.drafts < SOONEST or ratio.count >= PLAIN_STEPS / 2:
            return False
        steps = self._step.cold + COUNTED if self._step.cold else 1
        cost = steps * self.plain_ms * max(LEAST_COST, 1 - 1 / reply.gain)
        if probes.credit < cost or probes.spent + cost > OF_REPLY * reply.lasted:
            return False
        probes.credit -= cost
        probes.spent += cost
        probes.left = steps - 1
        return True

    def repeats(self) -> bool:
        """Return True if a plain step should be repeated after the last step of a reply."""
        reply, step = self._reply, self._step
        if not reply.lasted or reply.repeated.error <= UNSURE:
            return False
        if not reply.drafts:
            least, enough = reply.repeated.spent_ms + reply.lasted / reply.tokens, reply.repeated.count >= BARE
        else:
            fewest_ms = (step.cold + FEWEST) * step.bare_ms * reply.load
            least = max(reply.repeated.spent_ms + self.plain_ms, fewest_ms)
            # Long after the last draft the load may differ from that of the drafts.
            enough = not step.ms or reply.drafts < SOONEST or self._last.expected < step.ms / 2
            enough = enough or self._ratio.known(self.load, self._costs.load.value)[1] <= UNSURE
        return not enough and least <= min(max(LAST_MS, OF_REPLY * reply.lasted), MOST_MS)

    def add_repeated(self, outcome: StepOutcome) -> None:
        """Count a plain step that was repeated after a reply."""
        reply = self._reply
        reply.settled += 1
        if not reply.drafts:
            reply.repeated.add(outcome.verify_ms, min(outcome.verify_ms / (reply.lasted / reply.tokens), SPIKE))
            return
        load = reply.load
        expected = self._step.bare_ms * load
        counts = reply.settled > self._step.cold and expected > 0
        reply.repeated.add(outcome.verify_ms, min(outcome.verify_ms / expected, SPIKE) * load if counts else None)

    def end(self) -> tuple[PlainKnown, ...]:
        """End a reply: return what is known of plain decoding's time now, and keep what repeated steps tell of it."""
        reply = self._reply
        if not reply.drafting:
            return ()
        own, loads = reply.drafting[self._arm].load, reply.drafting.values()
        ratio, error = self._ratio.known(own, own)
        moved = sum(of.expected * (own / of.load - 1) for of in loads)
        alike = abs(moved) <= MOVED * sum(of.expected for of in loads)
        if reply.repeated.count:
            last = self._last.load
            seen, unsure = max(LEAST_LOAD, reply.repeated.mean / last), hypot(reply.repeated.error, log(own / last))
            self._ratio.add(seen, last, own, (NOISE / unsure) ** 2)
            (ratio, error), alike = combined(ratio, error, seen, unsure), True
        return tuple(
            PlainKnown(strategy, (own * ratio * self._step.ms + self._sent.value) / load.load, hypot(error, BETWEEN))
            for strategy, load in reply.drafting.items()
            if alike or strategy == self._arm
        )

    def add(self, strategy: str, outcome: StepOutcome, sent_ms: float = 0.0) -> Measured:
        """Count a step by `strategy` that just ended, processing of its text included.

        The client took the event of the step before in `sent_ms`.
        """
        reply, now = self._reply, self._costs.clock()
        self._fade(now)
        usual, load = self._costs.usual, self.load
        other_ms = usual.other_ms
        if reply.ended is not None:
            other_ms = max(0.0, 1e3 * (now - reply.ended) - outcome.draft_ms - outcome.verify_ms)
            self._sent.add(sent_ms if reply.settled else EVENT * sent_ms)
        reply.ended, lasted = now, outcome.verify_ms + other_ms
        reply.verified.add(outcome.verify_ms, usual.verify_ms)
        reply.lasted += max(0.0, outcome.draft_ms + lasted - sent_ms)
        reply.tokens += len(outcome.tokens)
        if not self._step.ms:
            return Measured()
        reply.settled += 1
        if outcome.drafted:
            self._strategy, self._arm, reply.settled = strategy, outcome.strategy, 0
            reply.drafts += 1
            self._last.keep(exp(-1 / LAST_DRAFTS))
            own = usual.draft_ms + usual.verify_ms + usual.other_ms
            for load_of in (self._loads[strategy], reply.drafting[outcome.strategy], self._last):
                load_of.add(outcome.draft_ms + lasted, own)
        elif reply.drafts and self._recent and reply.settled > self._step.cold:
            times = max(0.0, lasted - sent_ms) / (self._step.ms * load)
            self._ratio.add(min(times, SPIKE), load, self._costs.load.value)
        ratio, error = self._ratio.known(load, self._costs.load.value)
        plain, error = self._step.ms * ratio + self._sent.value / load, hypot(error, BETWEEN)
        if not outcome.drafted:
            own, error = plain * (1 + outcome.draft_ms / lasted) if lasted else plain, 0.0
        reply.own += own
        reply.plain += plain * len(outcome.tokens)
        return Measured(own, plain, error)

    def _fade(self, now: float) -> None:
        passed, self._since = 0.0 if self._since is None else max(0.0, now - self._since), now
        if self._probes.credit is not None:
            most = 2 * (self._step.cold + COUNTED) * self._step.ms * self.load
            self._probes.credit = min(self._probes.credit + 1e3 * SHARE * passed, max(self._probes.credit, most))
        for load in (*self._loads.values(), self._last):
            load.fade(passed)
        for ratio in self._ratios.values():
            ratio.fade(exp(-passed / RATIO_S))
