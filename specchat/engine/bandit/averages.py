"""Decaying averages of accepted and drafted tokens by kind of text, and the expected throughput.

A step that drafts n tokens takes D to draft them, v(1 + n) to verify them and o for the rest. It gives E tokens, the
target's own one included. Its expected throughput is E / (D + v + o) (Leviathan et al. 2023, theorem 3.8, with measured
costs). Older counts weigh less. An average with few counts falls back on a wider one: this kind of text in this chat,
this kind of text, all texts, an assumed value.

The kind of a text is how much of its end occurred before. New prose and new code are two kinds.
"""

from collections.abc import Sequence

from specchat.engine.drafters.occurrences import KEY
from specchat.engine.strategy import MAX_DRAFT_LENGTH

PRIOR = 4.0
"""Weight of the wider average, in drafts."""
KEPT, KEPT_LONG = 0.92, 0.995
"""Decay per draft within a text, and over all texts: half-lives of 8 and 140 drafts."""
KEPT_RARE = 0.7
"""Decay after a draft that was made only to explore."""
ALIKE, NEW = 5, 2
"""Kinds by tokens at the end that occurred before: 0 or 1, 2 or 3, 4 to 7, 8 to 15, more; the first two are new."""
KINDS = ALIKE + NEW
"""All kinds, with those of new code."""


def text_kind(matched: int, code: bool = False) -> int:
    """Return the kind of a text whose last `matched` tokens occurred before."""
    alike = 0 if matched < KEY else min(matched.bit_length() - 1, ALIKE - 1)
    return ALIKE + alike if code and alike < NEW else alike


def expected_throughput(
    accepted: float, drafted: float, draft_ms: float, verify_ms: Sequence[float], other_ms: float
) -> float:
    """Tokens per millisecond of steps with these mean `accepted` and `drafted` tokens.

    `verify_ms` are the milliseconds of verifying 0, 1, ... tokens.
    """
    row = min(int(drafted), MAX_DRAFT_LENGTH - 1)
    ms = verify_ms[1 + row] + (drafted - row) * (verify_ms[2 + row] - verify_ms[1 + row])
    return (1 + accepted) / (draft_ms + ms + other_ms)


class Average:
    """A decaying average that falls back on a wider one."""

    __slots__ = ("_decay", "_prior", "_sum", "_weight", "_wider")

    def __init__(self, wider: "Average | float", decay: float = KEPT) -> None:
        self._wider, self._decay = wider, decay
        self.forget()

    def forget(self) -> None:
        """Reset this average, not the wider ones."""
        self._sum = self._weight = 0.0
        self._prior = PRIOR

    @property
    def value(self) -> float:
        wider = self._wider if isinstance(self._wider, float) else self._wider.value
        return (self._sum + self._prior * wider) / (self._weight + self._prior)

    def add(self, *values: float, weight: float = 1.0, rare: bool = False) -> None:
        """Add values of a `weight` each to this average and all wider ones; before `rare` ones it decays faster."""
        average: Average | float = self
        most = KEPT_RARE if rare else 1.0
        while isinstance(average, Average):
            decay, sums, weights = min(average._decay, most), average._sum, average._weight
            for value in values:
                sums = decay * sums + value * weight
                weights = decay * weights + weight
            average._sum, average._weight = sums, weights
            average._prior *= decay ** len(values)
            average, most = average._wider, 1.0

    def state(self) -> tuple[float, float]:
        """Return the sum of values counted here, and their weight."""
        return self._sum, self._weight

    def restore(self, state: tuple[float, float]) -> None:
        """Restore values returned by `state`."""
        self._weight = min(state[1], 1 / (1 - self._decay))
        self._sum = min(state[0], self._weight * MAX_DRAFT_LENGTH)
        # n values weigh (1 - k^n) / (1 - k), and the prior has decayed by k^n.
        self._prior = PRIOR * max(0.0, 1 - self._weight * (1 - self._decay))

    @property
    def wider(self) -> "Average":
        """The wider average."""
        assert isinstance(self._wider, Average)
        return self._wider


def by_kind(assumed: float, kinds: int = KINDS) -> list[Average]:
    """Create an average per kind of text in one chat, over one of that kind and one of all texts."""
    everywhere = Average(assumed, KEPT_LONG)
    return [Average(Average(everywhere, KEPT_LONG)) for _ in range(kinds)]


def wide_kept(averages: Sequence[Average]) -> list[tuple[float, float]]:
    """Return counts beyond one chat: of all texts, then by kind of text."""
    return [averages[0].wider.wider.state(), *(average.wider.state() for average in averages)]


def restore_wide(averages: Sequence[Average], states: Sequence[tuple[float, float]]) -> None:
    """Restore values returned by `wide_kept`."""
    averages[0].wider.wider.restore(states[0])
    for average, sums in zip(averages, states[1:], strict=True):
        average.wider.restore(sums)
