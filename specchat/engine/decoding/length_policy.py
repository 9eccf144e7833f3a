"""Draft-length policy: a chain ends before a token that is unlikely to pay.

A further token is accepted only if all tokens before it are. It costs a pass of the draft model and one more token to
verify. It pays if its acceptance probability exceeds this cost times the tokens per millisecond of steps. The
probability only falls along a chain, so the first token that does not pay ends it.

The model's probabilities are calibrated: each bin counts how many of its drafted tokens were accepted.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.outcome import StepOutcome

BIN_BOUNDS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
"""Upper bounds of the calibration bins, by the model's probability; the last bin has none."""
ASSUMED_RATES = (0.15, 0.4, 0.55, 0.65, 0.75, 0.85, 0.925, 0.965, 0.985, 0.99, 0.995)
"""Assumed acceptance rate of each bin."""
PRIOR = 4.0
"""Weight of an assumed rate, in tokens."""
KEPT, KEPT_STEP = 0.99, 0.97
"""Decay of counts per token, and per step."""
REVIEW = 8
"""Steps between two reviews of costs."""
ROWS = 8
"""Drafted tokens over which the cost of verifying one more is averaged."""
UNSURE = 0.7
"""Least acceptance probability until costs are measured. Also the least probability of a token if the text depends on
the draft, so that the draft must not depend on time."""


class CalibrationBins:
    """Acceptance rates of tokens by the draft model's probability."""

    def __init__(self) -> None:
        self._hits = [PRIOR * share for share in ASSUMED_RATES]
        self._tries = [PRIOR] * len(ASSUMED_RATES)
        self.values = list(ASSUMED_RATES)

    def add(self, at: int, hit: bool) -> None:
        """Count one more token of bin `at`."""
        self._hits[at] = KEPT * self._hits[at] + hit
        self._tries[at] = KEPT * self._tries[at] + 1
        self.values[at] = self._hits[at] / self._tries[at]


class TokenPrice:
    """Least acceptance probability at which a further token pays, by the costs of a strategy's steps."""

    def __init__(self, strategy: str, costs: StepCosts, at_once: bool) -> None:
        self._strategy, self._costs, self._at_once = strategy, costs, at_once
        self._tokens = self._ms = 0.0
        self._steps = 0
        self.least = UNSURE

    def observe(self, outcome: StepOutcome) -> None:
        """Count a step, and review the price now and then."""
        self._tokens = KEPT_STEP * self._tokens + len(outcome.tokens)
        self._ms = KEPT_STEP * self._ms + outcome.draft_ms + outcome.verify_ms + self._costs.other_ms
        self._steps += 1
        if self._steps % REVIEW == 0 and self._ms:
            checks = self._costs.verify_ms()
            row_ms = (checks[1 + ROWS] - checks[1]) / ROWS
            rate = max(self._tokens / self._ms, 1 / (checks[1] + self._costs.other_ms))
            price = rate * (row_ms + (0.0 if self._at_once else self._costs.further_token_ms(self._strategy)))
            self.least = min(max(0.05, price), 0.95)


class LengthPolicy:
    """Draft-length policy of one strategy. Costs and calibration are kept between texts."""

    def __init__(self, strategy: str, costs: StepCosts, at_once: bool = False) -> None:
        """Create a policy; with `at_once` one pass drafts all tokens, so one more costs only verification."""
        self._price = TokenPrice(strategy, costs, at_once)
        self._stay, self._follow = CalibrationBins(), CalibrationBins()

    @property
    def chance(self) -> float:
        """Probability that all tokens of the draft are accepted; 1 if the policy does not track it."""
        return self._chance

    def begin(self, timed: bool, off: bool = False) -> "LengthPolicy":
        """Begin a draft; it may depend on measured times only if `timed`, and the policy never ends it if `off`."""
        self._chance, self._seen = 1.0, 0
        self._timed, self._off = timed, off
        return self

    def ends(self, probability: float) -> bool:
        """Return True if the draft ends with a token of this probability."""
        if self._off:
            return False
        if not self._timed:
            return probability < UNSURE
        bin_index = bisect_left(BIN_BOUNDS, probability)
        self._chance *= self._stay.values[bin_index]
        return self._chance * self._follow.values[bin_index] < self._price.least

    def ends_after(self, confidence: Sequence[float]) -> bool:
        """Return True if the draft ends with its last token; `confidence` has the probability of each token."""
        ends = False
        for probability in confidence[self._seen :]:
            ends = self.ends(probability)
        self._seen = len(confidence)
        return ends

    def chance_after(self, confidence: Sequence[float]) -> float:
        """Return the probability that all tokens with this `confidence` are accepted."""
        self.ends_after(confidence)
        return self._chance

    def known(self) -> tuple[NDArray[np.float64], float]:
        """Return `calibration` and `min_acceptance` of `ChainParameters`, by which `ends` decides."""
        shares = np.array(((*BIN_BOUNDS, np.inf), self._stay.values, self._follow.values))
        return shares, -1.0 if self._off else self._price.least

    def observe(self, outcome: StepOutcome) -> None:
        """Update calibration and threshold from a step's outcome."""
        before = -1
        for depth, probability in enumerate(outcome.confidence[: outcome.tested]):
            if probability is None:  # copied
                continue
            at = bisect_left(BIN_BOUNDS, probability)
            stayed = depth < outcome.accepted
            self._stay.add(at, stayed)
            if before >= 0:
                self._follow.add(before, stayed)
            before = at
        self._price.observe(outcome)


class LengthPolicies:
    """Draft-length policies of all strategies."""

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.off = False
        """True to draft up to the limit, for measuring."""
        self.forget()

    def forget(self) -> None:
        """Forget all measurements."""
        self._policies: dict[str, LengthPolicy] = {}
        self._begun: LengthPolicy | None = None

    def start(self) -> None:
        """Start a step, with nothing drafted yet."""
        self._begun = None

    def begin(self, strategy: str, timed: bool, at_once: bool = False) -> LengthPolicy:
        """Begin a draft of `strategy`; `timed` as in `LengthPolicy.begin`, `at_once` as in `LengthPolicy`."""
        if strategy not in self._policies:
            self._policies[strategy] = LengthPolicy(strategy, self.costs, at_once)
        self._begun = self._policies[strategy]
        return self._begun.begin(timed, self.off)

    def observe(self, outcome: StepOutcome) -> None:
        """Update the policy of this step's draft, if any."""
        if self._begun is not None:
            self._begun.observe(outcome)
