"""Times plain decoding, from what steps and plain decoding take where the machine is not slow."""

import random
from dataclasses import replace
from math import log

import pytest

from specchat.engine.protocol.comparison import MIN_STEPS, MIN_TOKENS, Z_95, Comparison
from specchat.engine.protocol.events import Step

STEP = Step(1, (), 3, 3, 3, 4, 1.0, 2.0, 0.0, 6, "draft", usual_ms=2.0, plain_ms=4.0)


def test_of_one_step_nothing_is_told() -> None:
    """It may have been eight times as fast, or half as fast: by chance."""
    found = Comparison.of([replace(STEP, emitted=8, plain_ms=16.0)])
    assert found.estimate is not None
    assert found.estimate.times == 8.0
    assert found.speedup is None


@pytest.mark.parametrize(
    ("steps", "emitted", "told"),
    [(MIN_STEPS, MIN_TOKENS // MIN_STEPS, True), (MIN_STEPS - 1, 8, False), (MIN_STEPS, 1, False)],
)
def test_it_is_told_from_enough_steps_and_tokens_on(steps: int, emitted: int, told: bool) -> None:
    """Or where its interval is narrow, which it is not here."""
    uneven = [replace(STEP, emitted=emitted, usual_ms=1.0 + 2.0 * (at % 2)) for at in range(steps)]
    assert (Comparison.of(uneven).speedup is not None) == told


def test_a_narrow_interval_is_told_sooner() -> None:
    assert Comparison.of([STEP] * 4).speedup is not None
    assert Comparison.of([STEP] * 3).speedup is None
    unsure = Comparison.of([replace(STEP, plain_error=0.1)] * 4)
    assert unsure.speedup is None
    assert unsure.estimate is not None
    assert log(unsure.estimate.high / unsure.estimate.low) == pytest.approx(2 * Z_95 * 0.1)
    unknown = Comparison.of([replace(STEP, plain_error=1e6)] * 4).estimate
    assert unknown is not None
    assert 0 < unknown.low < unknown.times < unknown.high


def test_none_is_told_while_plain_s_own_time_is_unsure() -> None:
    for error, told in ((0.077, True), (0.078, False)):
        known = Comparison.of([replace(STEP, plain_error=error)] * (MIN_TOKENS // STEP.emitted)).speedup
        assert (known is not None) == told
    for error, told in ((0.19, True), (0.2, False)):
        known = Comparison.of([replace(STEP, plain_error=error)] * (MIN_TOKENS // STEP.emitted))
        assert (known.speedup, known.rough is not None) == (None, told)


def test_what_a_later_step_knows_better_holds_for_those_before_it() -> None:
    """Plain decoding takes 3 ms, as a plain step among drafts told; until then 4 ms were assumed."""
    unsure, sure = replace(STEP, plain_ms=4.0, plain_error=0.2), replace(STEP, plain_ms=3.0, plain_error=0.04)
    plain = replace(STEP, strategy="plain", usual_ms=1.0, plain_ms=1.0, emitted=1)
    found = Comparison.of([*[unsure] * 12, plain, *[sure] * 4])
    assert found.plain_ms == pytest.approx(16 * 3.0 + 1.0)
    assert found.speedup is not None
    drifted = Comparison.of([*[sure] * 4, plain, *[unsure] * 12])
    assert drifted.plain_ms == pytest.approx(4 * 3.0 + 1.0 + 12 * 4.0)
    assert drifted.speedup is None
    joined = Comparison.of([unsure] * 12)
    joined.join(Comparison.of([sure] * 4))
    assert joined.plain_ms == pytest.approx(12 * 4.0 + 4 * 3.0), "of another reply nothing is told"


def test_the_interval_holds_the_truth_nineteen_times_of_twenty() -> None:
    chance, held = random.Random(0), 0
    for _ in range(400):
        made = []
        for _ in range(40):
            accepted = chance.randint(0, 7)
            made.append(replace(STEP, usual_ms=chance.uniform(1.0, 3.0), plain_ms=1.0 + accepted))
        found = Comparison.of(made).speedup
        assert found is not None
        held += found.low <= 4.5 / 2.0 <= found.high
    assert 0.91 <= held / 400 <= 0.98


def test_steps_without_a_yardstick_do_not_count() -> None:
    for odd in (0.0, -1.0, float("inf"), float("nan")):
        assert Comparison.of([replace(STEP, plain_ms=odd), replace(STEP, usual_ms=odd)]).estimate is None


def test_what_is_joined_is_as_if_it_had_been_one() -> None:
    steps = [replace(STEP, usual_ms=1.0 + at) for at in range(6)]
    joined = Comparison.of(steps[:2])
    joined.join(Comparison.of(steps[2:]))
    assert joined.estimate == Comparison.of(steps).estimate
