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


@pytest.mark.timed
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_costs_little_after_a_long_text(family: str, text: str) -> None:
    """A step with a draft takes the demo pair two to three milliseconds, and this a twentieth; twice that here."""
    earlier = Earlier()
    earlier.add("a", TEXTS["worded"])
    copier = FAMILIES[family](earlier)
    tokens = list(TEXTS[text])
    copier.propose(tokens, 1)
    took = []
    for _ in range(300):
        tokens += tokens[9000 + len(tokens) % 9000 :][:3]
        begun = perf_counter()
        copier.propose(tokens, 8)
        took.append(perf_counter() - begun)
    # Other work on the machine only adds.
    assert sorted(took)[len(took) // 4] < 250e-6
