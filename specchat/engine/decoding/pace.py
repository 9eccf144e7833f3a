"""What a way of drafting promises: tokens a millisecond, by what steps cost here and how much of drafts stays.

A step that drafts up to n tokens takes D(n) to draft, v(1 + drafted) to check and o besides, and brings E(n) = 1 +
s(1) + ... + s(n) tokens, s(j) being the share of steps that keep the j-th. So a family and a length promise E / (D + v
+ o) (Leviathan et al. 2023, theorem 3.8, with measured costs). All of it is measured while replies are written, and
what is old counts less.
"""

from collections.abc import Sequence

from specchat.engine.decoding.costs import Mean
from specchat.engine.strategies import MAX_DRAFT_LENGTH

KEPT = 0.95
"""Weight of what is known of drafts after one more: half of it is forgotten in fourteen."""
KEPT_TRIAL = 0.8
"""The same after a trial: they are rare, so that each must tell more."""
KEPT_BEYOND = 0.75
"""The same of the places that a draft could not have: the text there may be another one since."""
PRIOR = 2.0
"""Drafts that what is assumed weighs as much as."""
GOES_ON = 0.9
"""Share of drafts that go on after a token, assumed."""
NEWEST = 0.1
"""Weight of the newest measurement at least."""
OUTLIER = 3.0
"""Times the mean that one measurement counts as at most."""
KEPT_COST = 0.97
"""Weight of what checks of some rows took after one more check of any."""
SLOPE = 0.05
"""What a row more adds to a check of one, assumed while only one count of rows was seen."""
PLACES = range(1, MAX_DRAFT_LENGTH + 1)
EACH = [1.0] * MAX_DRAFT_LENGTH
"""Shares of drafts that never end early."""


class Shares:
    """The shares of drafts that have something at their 1st, 2nd, ... place, by forgetful counts."""

    def __init__(self) -> None:
        self._hits = [0.0] * MAX_DRAFT_LENGTH
        self._tries = [0.0] * MAX_DRAFT_LENGTH

    def add(self, outcome: Sequence[bool | None], kept: float) -> None:
        """One more draft, with what it has at its first places, as far as that is known."""
        known = len(outcome)
        for counts in (self._hits, self._tries):
            counts[:known] = [kept * count for count in counts[:known]]
            counts[known:] = [KEPT_BEYOND * count for count in counts[known:]]
        for place, hit in enumerate(outcome):
            if hit is not None:
                self._hits[place] += hit
                self._tries[place] += 1

    def values(self, assumed: float) -> list[float]:
        """Of each place. Where little is known the first has the share `assumed`, a further one as much of the share
        before as the places before had on average."""
        shares, expected = [], assumed
        for place, hits, tries in zip(PLACES, self._hits, self._tries, strict=True):
            share = (hits + PRIOR * expected) / (tries + PRIOR)
            shares.append(share)
            expected = share * share ** (1 / place)
        return shares


class Family:
    """What is known of one way of drafting.

    Places are those of the tokens in the order in which a shorter draft would leave them out from the end.
    """

    def __init__(self, assumed: float, goes_on: float = 1.0) -> None:
        """`assumed` is the share of drafted tokens that stay, `goes_on` that of drafts that go on after a token."""
        self._assumed, self._goes_on = assumed, goes_on
        self.draft_ms = Mean()
        """Of a drafted token."""
        self.forget()

    def forget(self) -> None:
        """Know nothing of drafts; what they cost is kept."""
        self._kept, self._drafted = Shares(), Shares()
        self._best: list[tuple[float, int]] = []
        self.reviewed = 0

    def judged(self, outcome: Sequence[bool | None], drafted: int, kept: float = KEPT) -> None:
        """One more draft: whether each of its places stayed, of which it filled the first `drafted`.

        What is known of drafts before then weighs `kept` of what it did.
        """
        self._kept.add(outcome, kept)
        if self._goes_on < 1:
            self._drafted.add([place < drafted for place in range(len(outcome))], kept)

    def review(self, checks: Sequence[float], other_ms: float, number: int) -> None:
        """Compute the promises for review `number`, by what checks of 0, 1, ... rows take and the rest of a step."""
        self.reviewed = number
        kept = self._kept.values(self._assumed)
        going = self._drafted.values(self._goes_on) if self._goes_on < 1 else EACH
        self._best = [(0.0, 0)]
        draft_ms, tokens, drafted, most, best = self.draft_ms.value, 1.0, 0.0, 0.0, 0
        self.steps: list[tuple[float, float]] = [(1.0, checks[1] + other_ms)]
        """Tokens and milliseconds of a step by its length."""
        for length, (stays, goes) in enumerate(zip(kept, going, strict=True), 1):
            tokens += stays
            drafted += goes
            row = min(int(drafted), MAX_DRAFT_LENGTH - 1)
            ms = draft_ms * drafted + checks[1 + row] + (drafted - row) * (checks[2 + row] - checks[1 + row]) + other_ms
            self.steps.append((tokens, ms))
            if tokens / ms > most:
                most, best = tokens / ms, length
            self._best.append((most, best))

    def best(self, longest: int) -> tuple[float, int]:
        """The most tokens a millisecond that a length from 1 to `longest` promised at the last review, and it."""
        return self._best[min(longest, MAX_DRAFT_LENGTH)]
