"""Successive halving over contenders whose speeds are known."""

from collections.abc import Iterator

import pytest

from specchat.bench.contender import BenchPrompt, Different, Run
from specchat.bench.halving import Halving, HalvingProgress
from specchat.engine.stats import Stats

PROMPTS = [BenchPrompt(str(n), "", (), ()) for n in range(30)]


class Timed:
    """A contender whose reply to prompt n takes `ms[n]`."""

    free = False

    def __init__(self, name: str, ms: float, noise: float = 0.0, text: tuple[int, ...] = (1, 2)) -> None:
        self.name, self._ms, self._noise, self._text = name, ms, noise, text
        self.asked: list[str] = []

    def warm_up(self, prompt: BenchPrompt) -> None:
        del prompt

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        del most
        self.asked.append(prompt.id)
        sign = 1 if int(prompt.id) % 2 else -1
        stats = Stats(draft_ms=0.0, verify_ms=self._ms * (1 + sign * self._noise), other_ms=0.0)
        return Run(self._text, 1.0, 0.1, 1, stats)


def found(contenders: list[Timed], seconds: float = 1e9, clock: Iterator[float] | None = None):  # type: ignore[no-untyped-def]
    seen: list[HalvingProgress] = []
    ticks = clock or iter(lambda: 0.0, None)
    course = Halving(Timed("plain", 20.0), contenders, PROMPTS, lambda: next(ticks))  # type: ignore[arg-type]
    return course.run(seconds, seen.append), seen


def test_the_fastest_is_found_and_slow_ones_are_asked_little() -> None:
    contenders = [Timed(f"c{n}", 10.0 + n, noise=0.02) for n in range(8)]
    measured, seen = found(contenders)
    assert measured[0].name == "c0"
    assert measured[0].times == pytest.approx(2.0, rel=0.01)
    assert measured[0].low < 2.0 < measured[0].high
    assert [len(one.asked) for one in contenders] == [30, 30, 6, 6, 2, 2, 2, 2]
    assert [one.prompts for one in measured] == [30, 30, 6, 6, 2, 2, 2, 2]
    assert {at.left for at in seen} == {8, 4, 2}


def test_the_time_ends_it_after_a_whole_first_round() -> None:
    contenders = [Timed(f"c{n}", 10.0 + n) for n in range(4)]
    measured, _ = found(contenders, 5.0, iter(float(n) for n in range(1000)))
    assert measured[0].name == "c0"
    assert min(one.prompts for one in measured) == 2
    assert measured[0].prompts < 30


def test_a_text_that_differs_ends_it() -> None:
    with pytest.raises(Different, match="other"):
        found([Timed("same", 5.0), Timed("other", 4.0, text=(1, 3))])
