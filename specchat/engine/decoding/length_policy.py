"""Draft-length policy: a chain ends before a token that is unlikely to pay.

A further token is accepted with the probability that all before it are and it is too; it costs a pass of the draft and
a row of the verify pass. It pays where that probability times the tokens a millisecond that steps bring exceeds the
milliseconds it costs. As the probability only falls along a chain, the first token that does not pay ends it.

The model's own probabilities are calibrated: each bin counts how many of its drafted tokens were accepted.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.stepped import Stepped

SURE = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
"""Upper bounds of the calibration bins, by the model's probability; the last bin has none."""
ASSUMED = (0.15, 0.4, 0.55, 0.65, 0.75, 0.85, 0.925, 0.965, 0.985, 0.99, 0.995)
"""Acceptance rate of each bin before any token of it was judged."""
PRIOR = 4.0
"""Tokens that an assumed rate weighs as much as."""
KEPT, KEPT_STEP = 0.99, 0.97
"""Weight of older counts after one more token, or step."""
REVIEW = 8
"""Steps between two looks at costs."""
ROWS = 8
"""Drafted tokens over which the cost of one more row is taken."""
UNSURE = 0.7
"""Least probability of acceptance while nothing was measured; and least probability of a token where the text depends
on the draft, and so must not depend on time."""


class CalibrationBins:
    """Acceptance rates of tokens, by the model's probability."""

    def __init__(self) -> None:
        self._hits = [PRIOR * share for share in ASSUMED]
        self._tries = [PRIOR] * len(ASSUMED)
        self.values = list(ASSUMED)

    def add(self, at: int, hit: bool) -> None:
        """Count one more token of bin `at`."""
        self._hits[at] = KEPT * self._hits[at] + hit
        self._tries[at] = KEPT * self._tries[at] + 1
        self.values[at] = self._hits[at] / self._tries[at]


class LengthPolicy:
    """Of one strategy. Costs and calibration belong to the pair and are kept from text to text."""

    def __init__(self, strategy: str, costs: StepCosts, at_once: bool = False) -> None:
        """`at_once`: one pass makes all tokens of a draft, a further one costs only a row of the verify pass."""
        self._strategy = strategy
        self._costs = costs
        self._at_once = at_once
        self._stay, self._follow = CalibrationBins(), CalibrationBins()
        self._tokens = self._ms = 0.0
        self._steps = 0
        self._least = UNSURE

    @property
    def chance(self) -> float:
        """Probability that all tokens of the draft are accepted; 1 where its end does not depend on that."""
        return self._chance

    def begin(self, timed: bool, off: bool = False) -> "LengthPolicy":
        """A draft begins; not `timed` where it must be the same whenever it is made. It ends nowhere if `off`."""
        self._chance, self._seen = 1.0, 0
        self._timed, self._off = timed, off
        return self

    def ends(self, probability: float) -> bool:
        """Whether the draft ends with the token that got this probability."""
        if self._off:
            return False
        if not self._timed:
            return probability < UNSURE
        place = bisect_left(SURE, probability)
        self._chance *= self._stay.values[place]
        return self._chance * self._follow.values[place] < self._least

    def ends_after(self, confidence: Sequence[float]) -> bool:
        """Whether the draft ends with the last of its tokens, which got these probabilities."""
        ends = False
        for probability in confidence[self._seen :]:
            ends = self.ends(probability)
        self._seen = len(confidence)
        return ends

    def chance_after(self, confidence: Sequence[float]) -> float:
        """Probability that all tokens are accepted, which got these probabilities."""
        self.ends_after(confidence)
        return self._chance

    def known(self) -> tuple[NDArray[np.float64], float]:
        """`calibration` and `min_acceptance` of `ChainParameters`, by which `ends` decides."""
        shares = np.array(((*SURE, np.inf), self._stay.values, self._follow.values))
        return shares, -1.0 if self._off else self._least

    def observe(self, stepped: Stepped) -> None:
        """The draft was judged so."""
        before = -1
        for place, probability in enumerate(stepped.confidence[: stepped.tested]):
            if probability is None:  # copied
                continue
            at = bisect_left(SURE, probability)
            stayed = place < stepped.accepted
            self._stay.add(at, stayed)
            if before >= 0:
                self._follow.add(before, stayed)
            before = at
        self._tokens = KEPT_STEP * self._tokens + len(stepped.tokens)
        self._ms = KEPT_STEP * self._ms + stepped.draft_ms + stepped.verify_ms + self._costs.other_ms
        self._steps += 1
        if self._steps % REVIEW == 0 and self._ms:
            self._review()

    def _review(self) -> None:
        checks = self._costs.verify_ms()
        row_ms = (checks[1 + ROWS] - checks[1]) / ROWS
        rate = max(self._tokens / self._ms, 1 / (checks[1] + self._costs.other_ms))
        price = rate * (row_ms + (0.0 if self._at_once else self._costs.further(self._strategy)))
        self._least = min(max(0.05, price), 0.95)


class LengthPolicies:
    """Those of all strategies."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self.off = False
        """Whether drafts are as long as they may be, which is for measuring."""
        self.forget()

    def forget(self) -> None:
        """Forget all that was measured."""
        self._policies: dict[str, LengthPolicy] = {}
        self._begun: LengthPolicy | None = None

    def start(self) -> None:
        """A step starts, with nothing drafted yet."""
        self._begun = None

    def begin(self, strategy: str, timed: bool, at_once: bool = False) -> LengthPolicy:
        """A draft of `strategy` begins; `timed` as in `LengthPolicy.begin`, `at_once` as in `LengthPolicy`."""
        if strategy not in self._policies:
            self._policies[strategy] = LengthPolicy(strategy, self._costs, at_once)
        self._begun = self._policies[strategy]
        return self._begun.begin(timed, self.off)

    def observe(self, stepped: Stepped) -> None:
        """The step ended so."""
        if self._begun is not None:
            self._begun.observe(stepped)
