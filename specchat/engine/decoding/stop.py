"""Where a model's draft ends: before a token that is unlikely to pay.

A further token is wanted with the chance that all before it stay and it does too, and costs a pass of the draft and a
row of the check. It pays where that chance times the tokens a millisecond that steps bring is more than the
milliseconds it costs. As the chance only falls along a draft, the first that does not pay ends it.

What a probability of the model means is measured: how many of the drafted tokens that it was as sure of stayed.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.stepped import Stepped

SURE = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
"""Tokens are told apart by where their probability lies among these."""
ASSUMED = (0.15, 0.4, 0.55, 0.65, 0.75, 0.85, 0.925, 0.965, 0.985, 0.99, 0.995)
"""Share of each that stays, before any was judged."""
PRIOR = 4.0
"""Tokens that what is assumed weighs as much as."""
KEPT, KEPT_STEP = 0.99, 0.97
"""Weight of what is known after one more token, or step."""
REVIEW = 8
"""Steps between two looks at costs."""
ROWS = 8
"""Drafted tokens over which the cost of a row more is taken."""
UNSURE = 0.7
"""What the chance must be while nothing was measured, and a probability where the text depends on the draft and so must
not on time."""


class Shares:
    """Of tokens by how sure the model was."""

    def __init__(self) -> None:
        self._hits = [PRIOR * share for share in ASSUMED]
        self._tries = [PRIOR] * len(ASSUMED)
        self.values = list(ASSUMED)

    def add(self, at: int, hit: bool) -> None:
        """One more of place `at` of ASSUMED."""
        self._hits[at] = KEPT * self._hits[at] + hit
        self._tries[at] = KEPT * self._tries[at] + 1
        self.values[at] = self._hits[at] / self._tries[at]


class Stop:
    """Of one family. Costs and what a probability means belong to the pair and are kept from text to text."""

    def __init__(self, family: str, costs: StepCosts, at_once: bool = False) -> None:
        """`at_once`: one pass makes all tokens of a draft, so that a further one costs only its row of the check."""
        self._family = family
        self._costs = costs
        self._at_once = at_once
        self._stay, self._follow = Shares(), Shares()
        self._tokens = self._ms = 0.0
        self._steps = 0
        self._least = UNSURE

    @property
    def chance(self) -> float:
        """That all tokens of the draft stay; 1 where its end does not depend on that."""
        return self._chance

    def begin(self, timed: bool, off: bool = False) -> "Stop":
        """A draft begins; not `timed` where it must be the same whenever it is made. It ends nowhere if `off`."""
        self._chance = 1.0
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

    def known(self) -> tuple[NDArray[np.float64], float]:
        """What `ends` goes by: `shares` and `least` of `model.going.Going`."""
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
        checks = self._costs.checks()
        row_ms = (checks[1 + ROWS] - checks[1]) / ROWS
        rate = max(self._tokens / self._ms, 1 / (checks[1] + self._costs.other_ms))
        price = rate * (row_ms + (0.0 if self._at_once else self._costs.further(self._family)))
        self._least = min(max(0.05, price), 0.95)


class Stops:
    """Those of all families."""

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self.off = False
        """Whether drafts are as long as they may be, which is for measuring."""
        self.forget()

    def forget(self) -> None:
        """Know nothing."""
        self._stops: dict[str, Stop] = {}
        self._begun: Stop | None = None

    def start(self) -> None:
        """A step starts, with nothing drafted yet."""
        self._begun = None

    def begin(self, family: str, timed: bool, at_once: bool = False) -> Stop:
        """A draft of `family` begins; `timed` as in `Stop.begin`, `at_once` as in `Stop`."""
        if family not in self._stops:
            self._stops[family] = Stop(family, self._costs, at_once)
        self._begun = self._stops[family]
        return self._begun.begin(timed, self.off)

    def observe(self, stepped: Stepped) -> None:
        """The step ended so."""
        if self._begun is not None:
            self._begun.observe(stepped)
