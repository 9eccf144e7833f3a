"""The arms of `auto` that run a model: what their drafts brought, and when they drafted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from specchat.engine.bandit.averages import by_kind, take_wide, wide_kept
from specchat.engine.decoding.draft import ModelDrafter
from specchat.engine.strategy import MAX_DRAFT_LENGTH

Sums = Sequence[tuple[float, float]]
ACCEPTED, DRAFTED = 4.0, 5.0
"""Accepted and drafted tokens of a draft, before any was judged."""


@dataclass(frozen=True)
class Estimate:
    """Expected throughput in `times` plain decoding's; a further token is `accepted` with this probability."""

    times: float
    accepted: float


class Arm:
    """A strategy that runs a model, by kind of text."""

    def __init__(self, drafter: ModelDrafter, chain: "Arm | None" = None) -> None:
        """`chain` where it grows a tree by the model of that one."""
        self.drafter = drafter
        self.chain = chain
        self._accepted = by_kind(ACCEPTED)
        self._drafted = by_kind(DRAFTED if chain is None else float(MAX_DRAFT_LENGTH))
        self._pending: list[tuple[int, int, int | None, bool]] = []
        """Outcomes not yet folded into the averages: a step between passes is dearer than many at once."""
        self._estimates: dict[int, Estimate] = {}
        """By kind of text, until they are worked out anew."""
        self.known = 0
        """Drafts that it is known by, of all texts."""
        self.barren = 0
        """Explorations in a row that brought nothing."""
        self.forget()

    @property
    def reads(self) -> ModelDrafter:
        """The drafter that reads a text for this arm: a tree is drafted by its chain's model."""
        return self.drafter if self.chain is None else self.chain.drafter

    def forget(self) -> None:
        """Know of no text in particular."""
        self.refresh()
        for average in (*self._accepted, *self._drafted):
            average.forget()
        self.drafts = self.last = 0
        """Drafts in this chat, and the step in which it drafted last."""
        self.again = False
        """Whether its last exploration was accepted whole: then a whole draft follows at once."""

    def refresh(self) -> None:
        """Let estimates be worked out anew."""
        self._fold()
        self._estimates.clear()

    def estimate(self, of: int, times: Callable[[float, float], float]) -> Estimate:
        """The estimate in a text of kind `of`; `times` gives it from accepted and drafted tokens of a draft."""
        if (known := self._estimates.get(of)) is None:
            accepted, drafted = self.lengths(of)
            # As if all places had that rate: the one in the middle keeps the share that is kept of all.
            rate = min(1.0, accepted / max(drafted, 1.0)) ** (2 / (1 + drafted))
            known = self._estimates[of] = Estimate(times(accepted, drafted), rate)
        return known

    def lengths(self, of: int) -> tuple[float, float]:
        """Accepted and drafted tokens of a draft, in a text of kind `of`."""
        self._fold()
        return self._accepted[of].value, self._drafted[of].value

    def judged(self, of: int, accepted: int, drafted: int | None, rare: bool) -> None:
        """Count a draft in a text of kind `of`: accepted tokens of `drafted`, None where that says nothing of others.

        It is `rare` where it was made only to explore.
        """
        self._pending.append((of, accepted, drafted, rare))
        self.known += 1
        self.barren = self.barren + 1 if rare and not accepted else 0

    def learnt(self) -> tuple[int, Sums, Sums]:
        """Drafts that it is known by, and sums of accepted and drafted tokens, beyond one reply."""
        self._fold()
        return self.known, wide_kept(self._accepted), wide_kept(self._drafted)

    def take(self, drafts: int, accepted: Sums, drafted: Sums) -> None:
        """Go on with what `learnt` gave."""
        self.known = drafts
        take_wide(self._accepted, accepted)
        take_wide(self._drafted, drafted)
        self.refresh()

    def is_another(self, of: int) -> None:
        """The text of kind `of` is another one than when this arm was left."""
        self._fold()
        self._accepted[of].forget()

    def _fold(self) -> None:
        for (of, rare), judged in groupby(self._pending, key=itemgetter(0, 3)):
            _, accepted, drafted, _ = zip(*judged, strict=True)
            self._accepted[of].add(*accepted, rare=rare)
            self._drafted[of].add(*(made for made in drafted if made is not None), rare=rare)
        self._pending.clear()
