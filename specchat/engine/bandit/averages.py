"""Forgetful averages of what drafts bring, by kind of text, and the expected throughput that follows.

A step that drafts n tokens takes D to draft them, v(1 + n) to verify them and o besides, and gives E tokens, the
target's own one among them: its expected throughput is E / (D + v + o) (Leviathan et al. 2023, theorem 3.8, with
measured costs). Acceptance is counted while replies are written. Older counts weigh less, and where little is known a
wider average stands in: of this kind of text in this reply, of this kind of text, of all texts, what is assumed.

Kinds of text: by how much of its end occurred before, as drafts fare differently; new prose apart from new code.
"""

from collections.abc import Sequence

from specchat.engine.drafters.occurrences import KEY
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PRIOR = 4.0
"""Drafts that what is known otherwise weighs as much as."""
KEPT, KEPT_LONG = 0.92, 0.995
"""Weight of what is known of a text, and of all texts, after one more draft: half is forgotten in 8, and in 140."""
KEPT_RARE = 0.7
"""The same after a draft that was made only to explore."""
ALIKE, NEW = 5, 2
"""Kinds of text: of the end nothing occurred before, 2 or 3 tokens, 4 to 7, 8 to 15, more; the first two are new."""
KINDS = ALIKE + NEW
"""With those of new code."""


def kind(matched: int, code: bool = False) -> int:
    """The kind of a text whose last `matched` tokens occurred before."""
    alike = 0 if matched < KEY else min(matched.bit_length() - 1, ALIKE - 1)
    return ALIKE + alike if code and alike < NEW else alike


def expected_throughput(
    accepted: float, drafted: float, draft_ms: float, verify_ms: Sequence[float], other_ms: float
) -> float:
    """Tokens a millisecond of steps that draft and accept so many tokens on average.

    `verify_ms` are the milliseconds of verifying 0, 1, ... rows.
    """
    row = min(int(drafted), MAX_DRAFT_LENGTH - 1)
    ms = verify_ms[1 + row] + (drafted - row) * (verify_ms[2 + row] - verify_ms[1 + row])
    return (1 + accepted) / (draft_ms + ms + other_ms)


class Average:
    """A forgetful average; where little was counted it is what a wider one says."""

    __slots__ = ("_kept", "_prior", "_sum", "_weight", "_wider")

    def __init__(self, wider: "Average | float", kept: float = KEPT) -> None:
        self._wider, self._kept = wider, kept
        self.forget()

    def forget(self) -> None:
        """Reset this average; wider ones stay."""
        self._sum = self._weight = 0.0
        self._prior = PRIOR

    @property
    def value(self) -> float:
        wider = self._wider if isinstance(self._wider, float) else self._wider.value
        return (self._sum + self._prior * wider) / (self._weight + self._prior)

    def add(self, *values: float, weight: float = 1.0, rare: bool = False) -> None:
        """Add values to this average and all wider ones, each with a `weight`.

        `rare` ones must tell more: what was known before counts less.
        """
        average: Average | float = self
        most = KEPT_RARE if rare else 1.0
        while isinstance(average, Average):
            kept, sums, weights = min(average._kept, most), average._sum, average._weight
            for value in values:
                sums = kept * sums + value * weight
                weights = kept * weights + weight
            average._sum, average._weight = sums, weights
            average._prior *= kept ** len(values)
            average, most = average._wider, 1.0

    def kept(self) -> tuple[float, float]:
        """The sum and its weight of what was counted here."""
        return self._sum, self._weight

    def take(self, kept: tuple[float, float]) -> None:
        """Go on with what `kept` gave."""
        self._weight = min(kept[1], 1 / (1 - self._kept))
        self._sum = min(kept[0], self._weight * MAX_DRAFT_LENGTH)
        # The weight of n values is (1 - k^n) / (1 - k), of which k^n is what the assumed one has lost.
        self._prior = PRIOR * max(0.0, 1 - self._weight * (1 - self._kept))

    @property
    def wider(self) -> "Average":
        """The average that stands in where little was counted here."""
        assert isinstance(self._wider, Average)
        return self._wider


def by_kind(assumed: float, kinds: int = KINDS) -> list[Average]:
    """An average for each kind of text, which is of one reply; wider ones are of that kind, and of all texts."""
    everywhere = Average(assumed, KEPT_LONG)
    return [Average(Average(everywhere, KEPT_LONG)) for _ in range(kinds)]


def wide_kept(averages: Sequence[Average]) -> list[tuple[float, float]]:
    """Counts beyond one reply: of all texts, then by kind of text."""
    return [averages[0].wider.wider.kept(), *(average.wider.kept() for average in averages)]


def take_wide(averages: Sequence[Average], kept: Sequence[tuple[float, float]]) -> None:
    """Go on with what `wide_kept` gave."""
    averages[0].wider.wider.take(kept[0])
    for average, sums in zip(averages, kept[1:], strict=True):
        average.wider.take(sums)
