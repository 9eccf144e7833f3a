"""What ways of drafting promise, from what steps took and what drafts kept."""

import pytest

from specchat.engine.bandit.averages import Average, by_kind, expected_throughput
from specchat.engine.bandit.choice import BARREN, CHOOSING, RESTING, RESTS, UNASKED, rest_steps, unasked_steps
from specchat.engine.bandit.copies import Copies, model_gain
from specchat.engine.bandit.estimates import with_reading
from specchat.engine.bandit.exploration import LATEST, SOONEST, patience
from specchat.engine.strategy import MAX_DRAFT_LENGTH

CHECKS = [0.0, *(1 + row / 15 for row in range(MAX_DRAFT_LENGTH + 1))]


def test_an_average_follows_a_change() -> None:
    average = Average(0.9, decay=0.9)
    for value in (0.0, 1.0):
        for _ in range(30):
            average.add(value)
        assert average.value == pytest.approx(value, abs=0.06)


def test_little_that_is_known_moves_an_average_little() -> None:
    average = Average(0.9)
    average.add(0.0)
    assert 0.6 < average.value < 0.9


def test_a_rare_value_tells_more() -> None:
    often, rare = Average(0.0), Average(0.0)
    for average in (often, rare):
        for _ in range(30):
            average.add(0.0)
    for _ in range(4):
        often.add(1.0)
        rare.add(1.0, rare=True)
    assert rare.value > 1.5 * often.value


def test_a_rare_value_tells_no_more_of_other_texts() -> None:
    often, rare = Average(0.0), Average(0.0)
    for wide in (often, rare):
        narrow = Average(wide)
        for _ in range(30):
            narrow.add(1.0)
        narrow.add(0.0, rare=wide is rare)
    assert rare.value == often.value


@pytest.mark.parametrize("rare", [False, True])
def test_several_values_count_as_one_after_the_other(rare: bool) -> None:
    together, alone = by_kind(4.0, 1)[0], by_kind(4.0, 1)[0]
    for average in (together, alone):
        average.add(7.0)
    together.add(1.0, 5.0, 2.0, weight=2.0, rare=rare)
    for value in (1.0, 5.0, 2.0):
        alone.add(value, weight=2.0, rare=rare)
    assert together.value == pytest.approx(alone.value)
    together.forget()
    alone.forget()
    assert together.value == pytest.approx(alone.value), "of wider ones, too"


def test_what_is_known_of_a_text_stands_in_for_one_of_its_kind_and_less_for_others() -> None:
    here, there = by_kind(4.0, 2)
    for _ in range(30):
        here.add(0.0)
    assert 0.0 < there.value < 2.0
    for _ in range(30):
        there.add(4.0)
    here.forget()
    there.forget()
    assert here.value < 1.0 < 2.5 < there.value, "the next text of either kind"


def test_the_expected_throughput_is_that_of_leviathan() -> None:
    """(1 - a^(n+1)) / (1 - a) tokens in D + v + o."""
    stays, length = 0.8, 5
    accepted = (1 - stays ** (length + 1)) / (1 - stays) - 1
    expected = (1 + accepted) / (length * 0.1 + CHECKS[6] + 0.2)
    assert expected_throughput(accepted, length, 0.1 * length, CHECKS, 0.2) == pytest.approx(expected)
    half = expected_throughput(accepted, length + 0.5, 0.1 * (length + 0.5), CHECKS, 0.2)
    assert expected_throughput(accepted, length + 1, 0.1 * (length + 1), CHECKS, 0.2) < half < expected


@pytest.mark.parametrize(("stays", "row_ms"), [(0.95, 0.02), (0.8, 0.1), (0.5, 0.2), (0.05, 0.3)])
def test_copies_are_as_long_as_pays_best(stays: float, row_ms: float) -> None:
    checks = [0.0, *(1 + row_ms * row for row in range(MAX_DRAFT_LENGTH + 1))]
    promises = [sum(stays**j for j in range(n + 1)) / (checks[n + 1] + 0.1) for n in range(1, MAX_DRAFT_LENGTH + 1)]
    copies = Copies(stays, stays)
    most, length = copies.best(MAX_DRAFT_LENGTH, checks, 0.1)
    assert most == pytest.approx(max(promises))
    assert length == promises.index(max(promises)) + 1
    assert copies.best(1, checks, 0.1) == (pytest.approx(promises[0]), 1)


def test_first_tokens_and_later_ones_are_told_apart() -> None:
    copies = Copies(0.5, 0.5)
    for _ in range(20):
        copies.add([False] * 8)
        copies.add([True] * 8)
    most, length = copies.best(8, CHECKS, 0.0)
    assert length == 8, "what has begun well goes on well"
    assert most == pytest.approx((1 + 8 * 0.5) / CHECKS[9], rel=0.1)


def test_what_is_not_known_of_a_copy_counts_neither_way() -> None:
    known, open_ended = Copies(0.5, 0.5), Copies(0.5, 0.5)
    known.add([True, True])
    open_ended.add([True, True, None, None])
    open_ended.add([None])
    open_ended.add([])
    assert known.best(8, CHECKS, 0.0) == open_ended.best(8, CHECKS, 0.0)


def test_forgetting_a_text_keeps_what_copies_do_in_general() -> None:
    copies = Copies(0.5, 0.5)
    for _ in range(50):
        copies.add([True] * 8)
    copies.forget()
    assert copies.best(8, CHECKS, 0.0)[0] > 1.2 * Copies(0.5, 0.5).best(8, CHECKS, 0.0)[0]


def test_rests_get_longer_while_nothing_is_found() -> None:
    lengths = [rest_steps(barren, 0.05) for barren in (1, BARREN, 2 * BARREN, 99)]
    assert lengths == sorted(lengths)
    assert lengths[0] * RESTING <= 0.05 < (lengths[0] + 1) * RESTING
    assert (rest_steps(1, 0.0), rest_steps(99, 1e6)) == (0, RESTS)


def test_an_arm_goes_on_unasked_so_long_that_weighing_is_a_small_share() -> None:
    assert [unasked_steps(ms, 1.0) for ms in (0.0, 3.5 * CHOOSING, 99.0)] == [0, 3, UNASKED]


def test_what_loses_more_is_explored_less_often_and_what_was_in_vain_still_less() -> None:
    assert [patience(lost, 0) for lost in (-1.0, 0.0, 99.0)] == [SOONEST, SOONEST, LATEST]
    assert patience(20, 0) == pytest.approx(20)
    assert patience(20, 4) == pytest.approx(40)
    assert patience(999, 1000) == 4 * LATEST


def test_reading_is_paid_out_of_what_is_left_to_write() -> None:
    """Plain writes 60 tokens in 60; twice as fast after a reading that lasts 15 is 60 in 45."""
    assert with_reading(2.0, 60.0, 15.0) == pytest.approx(60 / 45)
    assert with_reading(2.0, 60.0, 0.0) == 2.0


def test_a_model_that_goes_on_gains_what_its_tokens_bring_beyond_their_time() -> None:
    """At a token a millisecond two more are best: each takes 0.1 and a fifteenth, and half of them are accepted."""
    assert model_gain(3, 1.0, 0.5, 1.0, 0.1, CHECKS[1:]) == pytest.approx(0.5 + 0.25 - 2 * (0.1 + 1 / 15))
    assert model_gain(3, 0.1, 0.5, 1.0, 0.1, CHECKS[1:]) == 0.0
