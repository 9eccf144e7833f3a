"""What drafting by copies costs in long texts."""

import random
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from types import FrameType
from typing import Any, SupportsIndex

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


MOST_LINES = {"lookup": 3500, "suffix": 9500, "ngram": 500}
"""Lines of Python that a step runs at most: half more than were counted for the worst of these texts."""
MOST_READ = 150
"""Tokens of the text that a step reads at most."""


class ReadTokens(list[int]):
    """Tokens that count how many of them are read."""

    read = 0

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        self.read += len(self)
        return super().__iter__()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_does_little_however_long_the_text_is(family: str, text: str) -> None:
    tokens, lines = ReadTokens(TEXTS[text][: TOKENS // 4]), 0
    earlier = Earlier()
    earlier.add("a", TEXTS["worded"][: len(tokens)])
    copier = FAMILIES[family](earlier)
    copier.propose(tokens, 1)

    def count(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    most_lines = most_read = 0
    for number in range(30):
        tokens.extend(TEXTS[text][3 * number : 3 * number + 3])
        tokens.read = lines = 0
        before = sys.gettrace()
        sys.settrace(count)
        try:
            copier.propose(tokens, 8)
        finally:
            sys.settrace(before)
        most_lines, most_read = max(most_lines, lines), max(most_read, tokens.read)
    assert 10 < most_lines < MOST_LINES[family]
    assert 0 < most_read < MOST_READ


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


@pytest.mark.rotated(3)
@pytest.mark.timed
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_costs_as_much_after_a_long_text_as_after_a_short_one(family: str, text: str) -> None:
    """They take turns, so that a busy machine slows both; the slower of the fastest quarter of their times counts."""
    short, long = (drafting(family, TEXTS[text][:count]) for count in (TOKENS // 16, TOKENS))
    times = [(short(number), long(number)) for number in range(300)]
    of_short, of_long = (sorted(found)[len(times) // 4] for found in zip(*times, strict=True))
    assert of_long < 3 * of_short
