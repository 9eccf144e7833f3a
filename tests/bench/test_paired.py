"""Ratios on one prompt, from replies of the same rounds."""

import random
from dataclasses import replace
from math import exp

import pytest

from specchat.bench.interleaved import Sample
from specchat.bench.paired import LATER, MIN_ROUNDS, STEPS, WHOLE, PairedRatio, all_within
from specchat.engine.protocol.stats import Stats
from tests.bench.samples import run, sample


def ours(name: str, ms: float, repeat: int = 0, waited_ms: float = 0.0) -> Sample:
    """A reply of three tokens that ran and waited for so many milliseconds."""
    stats = Stats(verify_ms=ms, waited_ms=waited_ms)
    timed = replace(run(1.0, stats=stats), seconds=(ms + waited_ms) / 1e3, ran_seconds=ms / 1e3)
    return replace(sample(name, 1.0, repeat=repeat), run=timed)


def both(plain: list[float], other: list[float]) -> tuple[list[Sample], list[Sample]]:
    made = [[ours(name, ms, at) for at, ms in enumerate(times)] for name, times in (("auto", other), ("plain", plain))]
    return made[0], made[1]


def ratio(plain: list[float], other: list[float]) -> PairedRatio:
    found = PairedRatio.of(*both(plain, other), STEPS)
    assert found is not None
    return found


def test_waits_do_not_count_but_beside_another_program() -> None:
    mine, plain = [ours("auto", 10.0, waited_ms=90.0)], [ours("plain", 20.0)]
    for speeds in (STEPS, WHOLE):
        found = PairedRatio.of(mine, plain, speeds)
        assert found is not None
        assert found.times == pytest.approx(2.0)
    theirs = [replace(sample("theirs", 1.0), run=replace(run(1.0), seconds=0.1))]
    for over, times in ((mine, 1.0), (plain, 5.0)):
        found = PairedRatio.of(over, theirs, WHOLE)
        assert found is not None
        assert found.times == pytest.approx(times)


def test_replies_of_one_round_are_compared() -> None:
    """A machine that is ten times as slow in one round slows both."""
    found = ratio([10.0, 100.0, 10.0], [5.0, 50.0, 5.0])
    assert (found.times, found.low, found.high, found.rounds) == pytest.approx((2.0, 2.0, 2.0, 3))
    mine, plain = both([10.0, 100.0], [5.0, 50.0])
    assert PairedRatio.of(mine[1:], plain[:1], STEPS) is None
    alone = PairedRatio.of(mine[:1], plain, STEPS)
    assert alone is not None
    assert (alone.low, alone.high) == (0.0, float("inf"))
    assert PairedRatio.of(mine, [sample("theirs", 1.0)], LATER) is None


def test_a_round_that_was_disturbed_moves_nothing() -> None:
    even = [10.0] * 8
    found = ratio(even, [*even[:7], 1000.0])
    assert (found.times, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_the_interval_holds_the_truth_nineteen_times_of_twenty() -> None:
    chance, held = random.Random(0), 0
    for _ in range(400):
        found = ratio([exp(chance.gauss(0, 0.05)) for _ in range(12)], [exp(chance.gauss(0, 0.05)) for _ in range(12)])
        held += found.low <= 1.0 <= found.high
    assert 0.91 <= held / 400 <= 0.98


def test_a_ratio_is_known_within_a_share_after_rounds_enough() -> None:
    assert ratio([10.0] * MIN_ROUNDS, [10.0] * MIN_ROUNDS).within(0.001)
    assert not ratio([10.0] * (MIN_ROUNDS - 1), [10.0] * (MIN_ROUNDS - 1)).within(0.5)
    assert not ratio([10.0] * 5, [10.0, 11.0, 9.0, 12.0, 8.0]).within(0.05)
    mine, plain = both([10.0] * 5, [10.0] * 5)
    unsure = [ours("plain again", 10.0 + at, at) for at in range(5)]
    assert all_within([*mine, *plain], "plain", 0.01)
    assert not all_within([*mine, *plain, *unsure], "plain", 0.01)
