"""A race of contenders whose speeds are known."""

from collections.abc import Iterator

import pytest

from specchat.bench.contender import BenchPrompt, Different, Run
from specchat.bench.race import REPEATS, ContenderRace, RaceProgress
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.stats import Stats

PROMPTS = [BenchPrompt(str(n), "", (), ()) for n in range(30)]


class Timed:
    """A contender whose reply to prompt n takes `ms[n]`."""

    free = False

    def __init__(
        self, name: str, ms: float, noise: float = 0.0, text: tuple[int, ...] = (1, 2), delay: float = 1.0
    ) -> None:
        """Its first reply to each prompt takes `delay` times as long."""
        self.name, self._ms, self._noise, self._text, self._delay = name, ms, noise, text, delay
        self.speculation = Speculation(name.partition(" ")[0])
        self.asked: list[str] = []

    def warm_up(self, prompt: BenchPrompt) -> None:
        del prompt

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        del most
        self.asked.append(prompt.id)
        sign = 1 if int(prompt.id) % 2 else -1
        late = self._delay if self.asked.count(prompt.id) == 1 else 1.0
        stats = Stats(draft_ms=0.0, verify_ms=late * self._ms * (1 + sign * self._noise), other_ms=0.0)
        return Run(self._text, 1.0, 0.1, 1, stats)


def race(contenders: list[Timed], clock: Iterator[float] | None = None, base: Timed | None = None) -> ContenderRace:
    ticks = clock or iter(lambda: 0.0, None)
    plain = Timed("plain", 20.0)
    return ContenderRace(plain, contenders, PROMPTS, lambda: next(ticks), base)  # type: ignore[arg-type]


def found(contenders: list[Timed], seconds: float = 1e9, clock: Iterator[float] | None = None):  # type: ignore[no-untyped-def]
    seen: list[RaceProgress] = []
    return race(contenders, clock).run(seconds, seen.append), seen


def test_the_fastest_is_found_and_slow_ones_are_asked_little() -> None:
    contenders = [Timed(f"c{n}", 10.0 + n, noise=0.02) for n in range(8)]
    measured, seen = found(contenders)
    assert measured[0].name == "c0"
    assert measured[0].times == pytest.approx(2.0, rel=0.01)
    assert measured[0].low < 2.0 < measured[0].high
    asked = [len(one.asked) for one in contenders]
    assert asked == sorted(asked, reverse=True)
    assert (asked[0], asked[7]) == (30, 1)
    assert [one.prompts for one in measured] == asked
    assert seen[-1] == RaceProgress("c0", 29, 1)


def test_the_time_ends_it_after_a_prompt_for_all() -> None:
    contenders = [Timed(f"c{n}", 10.0 + 0.1 * n) for n in range(4)]
    measured, _ = found(contenders, 2.0, iter(float(n) for n in range(1000)))
    assert [one.name for one in measured] == ["c0", "c1", "c2", "c3"]
    assert [one.prompts for one in measured] == [3, 3, 3, 3]
    measured, _ = found(contenders, 0.5, iter(float(n) for n in range(1000)))
    assert [one.prompts for one in measured] == [1, 1, 1, 1]


def test_a_text_that_differs_ends_it() -> None:
    with pytest.raises(Different, match="other"):
        found([Timed("same", 5.0), Timed("other", 4.0, text=(1, 3))])


def test_those_about_as_fast_answer_again_so_that_a_delay_does_not_count() -> None:
    contenders = [Timed("near", 10.0), Timed("late", 9.8, delay=1.04), Timed("far", 20.0)]
    measured, _ = found(contenders)
    assert [one.name for one in measured] == ["late", "near", "far"]
    assert measured[0].times == pytest.approx(20.0 / 9.8)
    near, late, far = (len(one.asked) for one in contenders)
    assert 30 < near <= late <= REPEATS * 30
    assert far == 1
    assert [one.prompts for one in measured] == [30, 30, 1]
    alone = [Timed("fast", 10.0), Timed("slow", 20.0)]
    found(alone)
    assert [len(one.asked) for one in alone] == [30, 1]


def test_a_base_is_measured_to_the_end() -> None:
    contenders = [Timed(f"c{n}", 10.0 + n) for n in range(8)]
    course = race(contenders, base=contenders[7])
    course.run(1e9, lambda _: None)
    assert len(contenders[7].asked) == len(contenders[0].asked) == REPEATS * 30
    beside = course.beside("c7")
    assert (beside[0].name, beside[0].prompts) == ("c0", 30)
    assert beside[0].times == pytest.approx(1.7)


def test_a_base_that_nothing_beats_ends_it() -> None:
    contenders = [Timed("base", 10.0), Timed("slow", 20.0)]
    race(contenders, base=contenders[0]).run(1e9, lambda _: None)
    assert [len(one.asked) for one in contenders] == [1, 1]


def test_a_strategy_that_is_slow_at_one_length_is_not_tried_at_others() -> None:
    quick, other = Timed("quick x5", 10.0), Timed("quick x9", 9.0)
    slow, never = Timed("slow x5", 30.0), Timed("slow x9", 1.0)
    ran = race([quick, other, slow, never])
    measured = ran.run(1e9, lambda _: None, [quick, slow])  # type: ignore[list-item]
    assert [one.name for one in measured] == ["quick x9", "quick x5", "slow x5"]
    assert never.asked == []
    assert slow.asked == ["0"]
    assert quick.asked[:2] == other.asked[:2] == ["0", "1"]
    assert measured[0].prompts == 30


def test_a_sweep_asks_all_as_often() -> None:
    contenders = [Timed("near", 10.0), Timed("late", 9.8, delay=1.04), Timed("far", 20.0)]
    course = race(contenders)
    measured = course.sweep(3, lambda _: None)
    assert [one.name for one in measured] == ["late", "near", "far"]
    assert {len(one.asked) for one in contenders} == {90}
    assert course.beside("near")[0].times == pytest.approx(10.0 / 9.8)
