"""Online search for the sub-layers that SWIFT can skip with the least loss of agreement."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from specchat.engine.decoding.cached import Decoder
from specchat.engine.strategy import SkippedLayers

if TYPE_CHECKING:
    from specchat.engine.model.passes import Skip

SEARCH_EVERY = 4
"""Steps between two trials of a search."""

WINDOW = 32
"""Generated tokens that score a trial."""
RATIO = 0.45
"""Share of the sub-layers between the first and the last layer that are skipped."""
GOOD_ENOUGH = 0.95
PATIENCE = 300
"""Trials without gain after which the search ends."""
MOST_TRIALS = 1000

Sublayer = tuple[str, int]


def share_right(target: Decoder, token_ids: Sequence[int], skip: "Skip") -> float:
    """Share of the last WINDOW tokens of `token_ids` that the target would draft right without `skip`."""
    first = len(token_ids) - 1 - WINDOW
    guesses = target.likeliest(token_ids[first:-1], first, skip)
    return sum(a == b for a, b in zip(guesses, token_ids[first + 1 :], strict=True)) / WINDOW


class SkipSearch:
    """Search that keeps the best skip set, and alternates random sets with small changes of the best one.

    The paper mixes random sets with Bayesian optimisation. Exchanging one or two sub-layers of the best set needs no
    model of the objective and no library. A trial that beats or ties the best set refreshes its score, which fades a
    little otherwise, so that a good score on an easy text does not last.
    """

    FADE = 0.998

    def __init__(self, layers: int, seed: int = 0, chosen: SkippedLayers | None = None) -> None:
        """Search among the sub-layers between the first and the last of `layers`; a `chosen` set ends the search."""
        self._random = random.Random(seed)
        self._choices: list[Sublayer] = [(kind, i) for i in range(1, layers - 1) for kind in ("attention", "mlp")]
        self._count = round(RATIO * len(self._choices))
        odd = [c for c in self._choices if c[1] % 2 == 1]
        rest = [c for c in self._choices if c[1] % 2 == 0]
        self._best = frozenset((odd + rest)[: self._count])
        self._score = 0.0
        self._stale = 0
        self.trials = 0
        self._chosen = chosen is not None
        if chosen is not None:
            parts = (("attention", chosen.attention), ("mlp", chosen.mlp))
            self._best = frozenset((kind, layer) for kind, layers_of in parts for layer in layers_of)

    @property
    def best(self) -> "Skip":
        return _skip(self._best)

    @property
    def done(self) -> bool:
        return (
            self._chosen
            or self._score > GOOD_ENOUGH
            or self._stale >= PATIENCE
            or self.trials >= MOST_TRIALS
            or self._count in (0, len(self._choices))
        )

    def try_set(self, score: "Callable[[Skip], float]") -> None:
        """Try one set; `score` returns the share of tokens it drafts right."""
        candidate = self._best if self.trials == 0 else self._random_set() if self.trials % 2 else self._changed()
        self.trials += 1
        reached = score(_skip(candidate))
        if reached >= self._score:
            self._stale = 0 if reached > self._score else self._stale + 1
            self._best, self._score = candidate, reached
        else:
            self._stale += 1
            self._score *= self.FADE

    def _random_set(self) -> frozenset[Sublayer]:
        return frozenset(self._random.sample(self._choices, self._count))

    def _changed(self) -> frozenset[Sublayer]:
        out = self._random.sample(sorted(self._best), min(2, len(self._best)))
        into = self._random.sample(sorted(set(self._choices) - self._best), len(out))
        return frozenset((self._best - set(out)) | set(into))


def _skip(sublayers: frozenset[Sublayer]) -> "Skip":
    attention, mlp = ([i for kind, i in sublayers if kind == wanted] for wanted in ("attention", "mlp"))
    return skip_of(attention, mlp)


def skip_of(attention: Iterable[int], mlp: Iterable[int]) -> "Skip":
    """Return the skip set of these sub-layers, by layer."""
    from specchat.engine.model.passes import Skip  # here, so that listing the strategies needs no torch

    return Skip(frozenset(attention), frozenset(mlp))
