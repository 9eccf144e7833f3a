"""The arms of `auto` that run a model: outcomes of their drafts, and the steps in which they drafted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from specchat.engine.bandit.averages import by_kind, restore_wide, wide_kept
from specchat.engine.decoding.draft import ModelDrafter
from specchat.engine.strategy import MAX_DRAFT_LENGTH

Sums = Sequence[tuple[float, float]]
ACCEPTED, DRAFTED = 4.0, 5.0
"""Accepted and drafted tokens of a draft, assumed before any is verified."""


@dataclass(frozen=True)
class Estimate:
    """Expected throughput, `times` that of plain decoding, and probability that a further token is `accepted`."""

    times: float
    accepted: float


class Arm:
    """A strategy that runs a model, with its outcomes by kind of text."""

    def __init__(self, drafter: ModelDrafter, chain: "Arm | None" = None) -> None:
        """Create an arm; `chain` is the arm with the same model if this one drafts trees."""
        self.drafter = drafter
        self.chain = chain
        self._accepted = by_kind(ACCEPTED)
        self._drafted = by_kind(DRAFTED if chain is None else float(MAX_DRAFT_LENGTH))
        self._pending: list[tuple[int, int, int | None, bool]] = []
        """Outcomes not yet folded into the averages: folding many at once costs less than one at each step."""
        self._estimates: dict[int, Estimate] = {}
        """Cached estimates by kind of text."""
        self.known = 0
        """Verified drafts over all texts."""
        self.barren = 0
        """Explorations in a row without an accepted token."""
        self.last = 0
        """The step of the last draft."""
        self.forget()

    @property
    def reads(self) -> ModelDrafter:
        """The drafter that reads a text for this arm: for a tree, that of its chain."""
        return self.drafter if self.chain is None else self.chain.drafter

    def forget(self) -> None:
        """Forget outcomes of this chat; wider averages are kept."""
        self.refresh()
        for average in (*self._accepted, *self._drafted):
            average.forget()
        self.drafts = 0
        """Drafts in this chat."""
        self.again = False
        """True if the last short exploration was accepted whole: a whole draft follows at once."""

    def refresh(self) -> None:
        """Drop cached estimates."""
        self._fold()
        self._estimates.clear()

    def estimate(self, kind: int, times: Callable[[float, float], float]) -> Estimate:
        """Estimate for texts of this `kind`; `times` maps accepted and drafted tokens of a draft to a throughput."""
        if (known := self._estimates.get(kind)) is None:
            accepted, drafted = self.lengths(kind)
            # One rate for all positions, so that acceptance at the middle position is the draft's acceptance rate.
            rate = min(1.0, accepted / max(drafted, 1.0)) ** (2 / (1 + drafted))
            known = self._estimates[kind] = Estimate(times(accepted, drafted), rate)
        return known

    def lengths(self, kind: int) -> tuple[float, float]:
        """Mean accepted and drafted tokens of a draft in texts of this `kind`."""
        self._fold()
        return self._accepted[kind].value, self._drafted[kind].value

    def add(self, kind: int, accepted: int, drafted: int | None, rare: bool) -> None:
        """Count a draft in a text of this `kind`; `rare` if it was made only to explore.

        `drafted` is None if its length says nothing about other drafts.
        """
        self._pending.append((kind, accepted, drafted, rare))
        self.known += 1
        self.barren = self.barren + 1 if rare and not accepted else 0

    def learnt(self) -> tuple[int, Sums, Sums]:
        """Return verified drafts, and sums of accepted and drafted tokens beyond one chat."""
        self._fold()
        return self.known, wide_kept(self._accepted), wide_kept(self._drafted)

    def restore(self, drafts: int, accepted: Sums, drafted: Sums) -> None:
        """Restore values returned by `learnt`."""
        self.known = drafts
        restore_wide(self._accepted, accepted)
        restore_wide(self._drafted, drafted)
        self.refresh()

    def forget_acceptance(self, kind: int) -> None:
        """Forget the acceptance in this chat for this `kind` of text: the text has changed since this arm drafted."""
        self._fold()
        self._accepted[kind].forget()

    def _fold(self) -> None:
        for (kind, rare), outcomes in groupby(self._pending, key=itemgetter(0, 3)):
            _, accepted, drafted, _ = zip(*outcomes, strict=True)
            self._accepted[kind].add(*accepted, rare=rare)
            self._drafted[kind].add(*(tokens for tokens in drafted if tokens is not None), rare=rare)
        self._pending.clear()
