"""What `auto` knows of a family that runs a model: what its drafts bring, and when it drafted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from specchat.engine.decoding.draft import ModelDrafter
from specchat.engine.decoding.pace import by_kind, take_wide, wide_kept
from specchat.engine.drafters.text_kind import KINDS
from specchat.engine.strategy import MAX_DRAFT_LENGTH

Sums = Sequence[tuple[float, float]]
ACCEPTED, DRAFTED = 4.0, 5.0
"""Tokens of a draft that stay, and all of them, before any was judged."""


@dataclass(frozen=True)
class Outlook:
    """What drafts promise in a text: `times` plain's tokens a second, a further token `stays` with this chance."""

    times: float
    stays: float


class ModelRecord:
    """Of one family, by kind of text."""

    def __init__(self, drafter: ModelDrafter, chain: "ModelRecord | None" = None) -> None:
        """`chain` where it is a tree by the model of that one."""
        self.drafter = drafter
        self.chain = chain
        self._accepted = by_kind(ACCEPTED, KINDS)
        self._drafted = by_kind(DRAFTED if chain is None else float(MAX_DRAFT_LENGTH), KINDS)
        self._judged: list[tuple[int, int, int | None, bool]] = []
        """What `judged` was told and averages were not: a step between passes is dearer than many at once."""
        self._outlooks: dict[int, Outlook] = {}
        """By kind of text, until they are thought over."""
        self.known = 0
        """Drafts that it is known by, of all texts."""
        self.barren = 0
        """Trials in a row that brought nothing."""
        self.forget()

    @property
    def reads(self) -> ModelDrafter:
        """Who reads a text for this family: a tree is drafted by its chain's model."""
        return self.drafter if self.chain is None else self.chain.drafter

    def forget(self) -> None:
        """Know of no text in particular."""
        self.rethink()
        for average in (*self._accepted, *self._drafted):
            average.forget()
        self.drafts = self.last = 0
        """Drafts in this chat, and the step in which it drafted last."""
        self.again = False
        """Whether its last trial kept all it drafted: then a whole draft follows at once."""

    def rethink(self) -> None:
        """Work out anew what its drafts promise."""
        self._learn()
        self._outlooks.clear()

    def outlook(self, of: int, promised: Callable[[float, float], float]) -> Outlook:
        """What it promises in a text of kind `of`.

        `promised` tells times plain's by how many tokens of a draft stay and how many it has.
        """
        if (known := self._outlooks.get(of)) is None:
            accepted, drafted = self.lengths(of)
            # As if all places had that chance: the one in the middle keeps the share that is kept of all.
            stays = min(1.0, accepted / max(drafted, 1.0)) ** (2 / (1 + drafted))
            known = self._outlooks[of] = Outlook(promised(accepted, drafted), stays)
        return known

    def lengths(self, of: int) -> tuple[float, float]:
        """Tokens of a draft that stay, and all of them, in a text of kind `of`."""
        self._learn()
        return self._accepted[of].value, self._drafted[of].value

    def judged(self, of: int, accepted: int, drafted: int | None, rare: bool) -> None:
        """A draft in a text of kind `of` kept so many tokens of `drafted`, None where that says nothing of others.

        It is `rare` where it was made only to see what it brings.
        """
        self._judged.append((of, accepted, drafted, rare))
        self.known += 1
        self.barren = self.barren + 1 if rare and not accepted else 0

    def learnt(self) -> tuple[int, Sums, Sums]:
        """By how many drafts it is known, and what they kept and had, beyond one reply."""
        self._learn()
        return self.known, wide_kept(self._accepted), wide_kept(self._drafted)

    def take(self, drafts: int, kept: Sums, had: Sums) -> None:
        """Go on with what `learnt` gave."""
        self.known = drafts
        take_wide(self._accepted, kept)
        take_wide(self._drafted, had)
        self.rethink()

    def is_another(self, of: int) -> None:
        """The text of kind `of` is another one than when this was left."""
        self._learn()
        self._accepted[of].forget()

    def _learn(self) -> None:
        for (of, rare), judged in groupby(self._judged, key=itemgetter(0, 3)):
            _, accepted, drafted, _ = zip(*judged, strict=True)
            self._accepted[of].add(*accepted, rare=rare)
            self._drafted[of].add(*(made for made in drafted if made is not None), rare=rare)
        self._judged.clear()
