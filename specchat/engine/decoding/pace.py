"""What a way of drafting promises: tokens a millisecond, by what steps cost here and how much of drafts stays.

A step that drafts n tokens takes D to draft them, v(1 + n) to check them and o besides, and brings E tokens, the
target's own one among them: it promises E / (D + v + o) (Leviathan et al. 2023, theorem 3.8, with measured costs).
How much stays is counted while replies are written. What is old counts less, and where little is known a wider
count stands in: of this kind of text in this reply, of this kind of text, of all texts, what is assumed.
"""

from collections.abc import Sequence

from specchat.engine.strategy import MAX_DRAFT_LENGTH

PRIOR = 4.0
"""Drafts that what is known otherwise weighs as much as."""
KEPT, KEPT_LONG = 0.92, 0.995
"""Weight of what is known of a text, and of all texts, after one more draft: half is forgotten in 8, and in 140."""
KEPT_RARE = 0.7
"""The same after a draft that was made only to see what it brings."""


class Average:
    """A forgetful average; where little was counted it is what a wider one says."""

    __slots__ = ("_kept", "_prior", "_sum", "_weight", "_wider")

    def __init__(self, wider: "Average | float", kept: float = KEPT) -> None:
        self._wider, self._kept = wider, kept
        self.forget()

    def forget(self) -> None:
        """As if nothing had been counted here; wider ones stay."""
        self._sum = self._weight = 0.0
        self._prior = PRIOR

    @property
    def value(self) -> float:
        wider = self._wider if isinstance(self._wider, float) else self._wider.value
        return (self._sum + self._prior * wider) / (self._weight + self._prior)

    def add(self, *values: float, weight: float = 1.0, rare: bool = False) -> None:
        """More values, each of which counts `weight` times; wider averages have them, too.

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
        """What was counted here: the sum and its weight."""
        return self._sum, self._weight

    def take(self, kept: tuple[float, float]) -> None:
        """Go on with what `kept` gave."""
        self._weight = min(kept[1], 1 / (1 - self._kept))
        self._sum = min(kept[0], self._weight * MAX_DRAFT_LENGTH)
        # The weight of n values is (1 - k^n) / (1 - k), of which k^n is what the assumed one has lost.
        self._prior = PRIOR * max(0.0, 1 - self._weight * (1 - self._kept))

    @property
    def wider(self) -> "Average":
        """What stands in where little was counted here."""
        assert isinstance(self._wider, Average)
        return self._wider


def wide_kept(averages: Sequence[Average]) -> list[tuple[float, float]]:
    """What is known beyond one reply: of all texts, and by kind of text where `averages` are by kind."""
    return [averages[0].wider.wider.kept(), *(average.wider.kept() for average in averages)]


def take_wide(averages: Sequence[Average], kept: Sequence[tuple[float, float]]) -> None:
    """Go on with what `wide_kept` gave."""
    averages[0].wider.wider.take(kept[0])
    for average, sums in zip(averages, kept[1:], strict=True):
        average.wider.take(sums)


def by_kind(assumed: float, kinds: int) -> list[Average]:
    """An average for each kind of text, which is of one reply; wider ones are of that kind, and of all texts."""
    everywhere = Average(assumed, KEPT_LONG)
    return [Average(Average(everywhere, KEPT_LONG)) for _ in range(kinds)]


class Copies:
    """How far copies come: the share of those whose first token stays, and of tokens that stay after one that did."""

    def __init__(self, first: float, later: float) -> None:
        """What is assumed of both."""
        self._first = Average(Average(first, KEPT_LONG))
        self._later = Average(Average(later, KEPT_LONG))

    def forget(self) -> None:
        """Know of no text in particular."""
        self._first.forget()
        self._later.forget()

    def judged(self, outcome: Sequence[bool | None]) -> None:
        """One more copy, by whether its tokens were right, None where that is not known."""
        if not outcome or outcome[0] is None:
            return
        self._first.add(float(outcome[0]))
        if outcome[0]:
            known = [right for right in outcome[1:] if right is not None]
            right = sum(known)
            tested = right + (right < len(known))
            if tested:
                self._later.add(right / tested, weight=tested)

    def best(self, longest: int, checks: Sequence[float], other_ms: float) -> tuple[float, int]:
        """The most tokens a millisecond that a length from 1 to `longest` promises, and it.

        `checks` are the milliseconds of checking 0, 1, ... rows.
        """
        stays, later = self._first.value, self._later.value
        tokens, most, best = 1.0, 0.0, 1
        for length in range(1, min(longest, MAX_DRAFT_LENGTH) + 1):
            tokens += stays
            stays *= later
            promise = tokens / (checks[length + 1] + other_ms)
            if promise > most:
                most, best = promise, length
        return most, best

    def gain(self, longest: int, chance: float, rate: float, checks: Sequence[float]) -> tuple[float, int]:
        """The most tokens that a length from 1 to `longest` brings after tokens that stay with `chance`, and it.

        Those that the time of its rows would bring at `rate` tokens a millisecond are taken off; `checks` are the
        milliseconds of a check without the copy, with one token of it, ...
        """
        stays, later = chance * self._first.value, self._later.value
        tokens, most, best = 0.0, float("-inf"), 1
        for length in range(1, longest + 1):
            tokens += stays
            stays *= later
            gain = tokens - rate * (checks[length] - checks[0])
            if gain > most:
                most, best = gain, length
        return most, best


def promise(accepted: float, drafted: float, draft_ms: float, checks: Sequence[float], other_ms: float) -> float:
    """Tokens a millisecond of steps that draft and keep so many tokens on average, where a draft takes `draft_ms`."""
    row = min(int(drafted), MAX_DRAFT_LENGTH - 1)
    check_ms = checks[1 + row] + (drafted - row) * (checks[2 + row] - checks[1 + row])
    return (1 + accepted) / (draft_ms + check_ms + other_ms)
