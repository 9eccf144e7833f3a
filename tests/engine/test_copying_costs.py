"""What drafting by copies costs in long texts."""

import random
from collections.abc import Callable
from time import perf_counter

import pytest

from specchat.engine.decoding.draft import Copier
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.lookup import LookupDrafter
from specchat.engine.drafters.ngram import NgramDrafter
from specchat.engine.drafters.occurrences import Occurrences
from specchat.engine.drafters.suffix import SuffixDrafter

FAMILIES: dict[str, Callable[[Earlier], Copier]] = {
    "lookup": lambda _: LookupDrafter(Occurrences()),
    "suffix": lambda earlier: SuffixDrafter(Occurrences(), earlier),
    "ngram": NgramDrafter,
}
TOKENS = 32_000


def worded() -> list[int]:
    """Frequent and rare tokens, with passages that come again."""
    chance = random.Random(0)
    text = [int(2000 * chance.random() ** 3) for _ in range(TOKENS // 2)]
    places = [chance.randrange(TOKENS // 2 - 100) for _ in range(160)]
    return text + [token for at in places for token in text[at : at + 100]]


TEXTS = {"worded": worded(), "repeated": [*range(40)] * (TOKENS // 40), "a rhythm": [5, 6, 7] * (TOKENS // 3)}


def drafting(family: str, tokens: list[int]) -> Callable[[int], float]:
    """A function that makes the step of a number, each after three tokens more than the last; gives its seconds."""
    earlier = Earlier()
    earlier.add("a", TEXTS["worded"][: len(tokens)])
    copier, more = FAMILIES[family](earlier), tokens[len(tokens) // 2 :]
    copier.propose(tokens, 1)

    def step(number: int) -> float:
        at = 3 * number % (len(more) - 3)
        tokens.extend(more[at : at + 3])
        begun = perf_counter()
        copier.propose(tokens, 8)
        return perf_counter() - begun

    return step


@pytest.mark.timed
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_costs_as_much_after_a_long_text_as_after_a_short_one(family: str, text: str) -> None:
    """They take turns, so that a busy machine slows both; the slower of the fastest quarter of their times counts."""
    short, long = (drafting(family, TEXTS[text][:count]) for count in (TOKENS // 16, TOKENS))
    times = [(short(number), long(number)) for number in range(300)]
    of_short, of_long = (sorted(found)[len(times) // 4] for found in zip(*times, strict=True))
    assert of_long < 3 * of_short
