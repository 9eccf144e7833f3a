"""Compares sampled replies of two servers that need not be the same text: do they follow one distribution?"""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from random import Random

GRAM = 3
"""Characters of the runs that are compared, so that no language has to have spaces."""
SHUFFLES = 400
"""Enough for the mean and spread of the statistic under chance."""
Z_LIMIT = 4.75
"""Standard errors of one false alarm in a million checks."""
MIN_REPLIES = 3
"""Replies of each server to a prompt; fewer tell nothing."""


def deviation(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> float:
    """Standard errors by which the replies differ more than chance has it; `one[i]` and `other[i]` answer prompt i.

    The energy distance of both groups (Székely and Rizzo 2013), with the Jaccard distance of their runs of characters,
    summed over prompts. Where all come from one distribution, the groups of a prompt can be exchanged: shuffled ones
    tell the mean and spread that chance gives.
    """
    prompts = [
        (len(mine), _distances([*mine, *theirs]))
        for mine, theirs in zip(one, other, strict=True)
        if len(mine) >= MIN_REPLIES and len(theirs) >= MIN_REPLIES
    ]
    random = Random(0)

    def total(shuffled: bool) -> float:
        found = 0.0
        for size, distances in prompts:
            order = list(range(len(distances)))
            if shuffled:
                random.shuffle(order)
            found += _energy(distances, order[:size], order[size:])
        return found

    seen, chance = total(shuffled=False), [total(shuffled=True) for _ in range(SHUFFLES)]
    mean = sum(chance) / SHUFFLES
    spread = sqrt(sum((value - mean) ** 2 for value in chance) / (SHUFFLES - 1))
    return (seen - mean) / spread if spread else 0.0


def most_unlike(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> tuple[str, str]:
    """The reply of `one` that is least like any of `other` to the same prompt, and the most similar one of these."""
    found: list[tuple[float, str, str]] = []
    for mine, theirs in zip(one, other, strict=True):
        distances = _distances([*mine, *theirs])
        for at, text in enumerate(mine):
            nearest, index = min((distances[at][len(mine) + n], n) for n in range(len(theirs)))
            found.append((nearest, text, theirs[index]))
    return max(found)[1:]


def _energy(distances: Sequence[Sequence[float]], one: Sequence[int], other: Sequence[int]) -> float:
    across = sum(distances[a][b] for a in one for b in other) / (len(one) * len(other))
    return 2 * across - _within(distances, one) - _within(distances, other)


def _within(distances: Sequence[Sequence[float]], group: Sequence[int]) -> float:
    pairs = list(combinations(group, 2))
    return sum(distances[a][b] for a, b in pairs) / len(pairs)


def _distances(texts: Sequence[str]) -> list[list[float]]:
    grams = [_grams(text) for text in texts]
    return [[1 - len(a & b) / (len(a | b) or 1) for b in grams] for a in grams]


def _grams(text: str) -> frozenset[str]:
    return frozenset(text[at : at + GRAM] for at in range(max(1, len(text) - GRAM + 1)))
