"""What the parts of a step cost, by measurements that lie, jump and grow old."""

import random
from statistics import fmean

import pytest

from specchat.engine.decoding.costs import STEADY, StepCosts, VerifyCosts
from specchat.engine.decoding.means import KEPT, Line, Mean
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.strategy import MAX_DRAFT_LENGTH


def checks(*measured: tuple[int, float]) -> list[float]:
    costs = VerifyCosts()
    for rows, ms in measured:
        costs.add(rows, ms)
    return costs.table()


def test_checks_between_measured_ones_lie_on_a_line() -> None:
    table = checks((1, 1.0), (5, 3.0))
    assert table[:6] == pytest.approx([0.0, 1.0, 1.5, 2.0, 2.5, 3.0])
    assert table[9] == pytest.approx(5.0)
    assert len(table) == MAX_DRAFT_LENGTH + 2


def test_more_rows_never_take_less() -> None:
    table = checks((1, 3.0), (4, 1.0), (8, 2.0))
    assert table == sorted(table)
    assert 1.0 < table[1] == table[4] < 3.0


def test_all_that_is_out_of_order_takes_one_mean() -> None:
    """By weights: what was measured before then weighs less."""
    table = checks((1, 2.0), (2, 3.0), (4, 0.1))
    one, two, four = KEPT**2, KEPT, 1.0
    mean = (2 * one + 3 * two + 0.1 * four) / (one + two + four)
    assert table[1:5] == pytest.approx([mean] * 4)


def test_what_was_measured_long_ago_gives_way() -> None:
    """A check of one row on a busy machine does not stand against many of four rows on an idle one."""
    table = checks((1, 9.0), *[(4, 1.0)] * 200)
    assert table[1] < 1.2


def test_costs_are_assumed_before_anything_was_measured() -> None:
    assert 0 < checks()[1] < checks()[16]
    assert 0 < checks((6, 2.0))[1] < 2.0 < checks((6, 2.0))[16]


def test_a_jump_of_the_clock_moves_a_mean_little() -> None:
    mean = Mean()
    for _ in range(10):
        mean.add(1.0)
    mean.add(1e9)
    assert mean.value < 1.5


def test_old_checks_are_told_from_new_ones_however_many_there_were() -> None:
    costs = VerifyCosts()
    for _ in range(3000):
        costs.add(1, 9.0)
    for _ in range(200):
        costs.add(4, 1.0)
    assert costs.table()[1] < 1.2


def test_weights_are_the_same_after_any_number_of_checks() -> None:
    costs = VerifyCosts()
    for _ in range(2000):
        costs.add(1, 2.0)
        costs.add(4, 1.0)
        assert 1.45 < costs.table()[1] == costs.table()[4] < 1.52


def step(drafted: int, draft_ms: float, verify_ms: float) -> StepOutcome:
    return StepOutcome((0,), (0,) * drafted, (), 0, (), draft_ms, verify_ms)


def test_what_was_not_seen_for_very_long_can_still_be_pooled() -> None:
    """More rows took less time, both so long ago that nothing of their weight is left."""
    costs = VerifyCosts()
    costs.add(8, 2.0)
    costs.add(9, 1.0)
    for _ in range(40_000):
        costs.add(1, 1.0)
    assert costs.table()[8] == costs.table()[9] == 1.5


def test_a_slow_machine_is_told_by_any_step() -> None:
    """It takes three times as long for a while, and none of its steps has one row: the cost of that follows."""
    costs = StepCosts(lambda: 0.0)
    for drafted, ms in [(0, 1.0), (5, 2.0)] * 10:
        costs.add("draft", step(drafted, 0.5 * drafted, ms))
    for times in (3.0, 1.0):
        for _ in range(60):
            costs.add("draft", step(5, 2.5 * times, 2.0 * times))
        assert costs.load.value == pytest.approx(times, rel=0.1)
        assert costs.verify_ms()[1] == pytest.approx(1.0 * times, rel=0.1)
        assert costs.verify_ms()[6] == pytest.approx(2.0 * times, rel=0.05)
        assert costs.draft_token_ms("draft") == pytest.approx(0.5 * times, rel=0.1)


def test_what_a_check_usually_takes_is_told_at_once() -> None:
    """A machine that turns slow is known by its first slow step, while the smoothed figure still follows."""
    costs = StepCosts(lambda: 0.0)
    for drafted, ms in [(0, 1.0), (5, 2.0)] * 10:
        costs.add("draft", step(drafted, 0.5 * drafted, ms))
    costs.add("draft", step(5, 5.0, 6.0))
    assert costs.usual.verify_ms == pytest.approx(2.0)
    assert costs.load.value < 2.0


def test_noise_does_not_make_a_machine_slow() -> None:
    noise = random.Random(0)
    costs = StepCosts(lambda: 0.0)
    for _ in range(5000):
        costs.add("plain", step(0, 0.0, noise.lognormvariate(0.0, 0.2)))
    found = []
    for _ in range(200):
        costs.add("plain", step(0, 0.0, noise.lognormvariate(0.0, 0.2)))
        found.append(costs.load.value)
    assert fmean(found) == pytest.approx(1.0, abs=0.1)


def test_rows_between_those_that_are_known_tell_as_well() -> None:
    costs = StepCosts(lambda: 0.0)
    for drafted, ms in [(0, 1.0), (8, 3.0)] * 6:
        costs.add("draft", step(drafted, 0.5 * drafted, ms))
    for _ in range(20):
        costs.add("draft", step(4, 2.0 * 2, 2.0 * 2))
    assert costs.load.value == pytest.approx(2.0, rel=0.05)
    assert costs.verify_ms()[1] == pytest.approx(2.0, rel=0.05)
    for _ in range(20):
        costs.add("draft", step(12, 6.0 * 3, 4.0 * 3))
    assert costs.load.value < 2.7, "of more rows than any only their own first ones tell"


def test_rows_that_were_seen_once_do_not_tell_how_slow_a_machine_is() -> None:
    costs = StepCosts(lambda: 0.0)
    for ms in (90.0, 1.0, 1.0):
        costs.add("draft", step(4, 1.0, ms))
        assert costs.load.value == 1.0


def test_a_step_is_taken_apart() -> None:
    now = 0.0
    costs = StepCosts(lambda: now)
    costs.begin()
    for _ in range(3):
        now += 0.010
        costs.add("draft", step(4, 2.0, 5.0))
    assert costs.draft_token_ms("draft") == pytest.approx(0.5)
    assert costs.draft_token_ms("swift") == 0.0
    assert costs.verify_ms()[5] == pytest.approx(5.0)
    assert costs.other_ms == pytest.approx(3.0)


def test_the_time_between_replies_belongs_to_no_step() -> None:
    now = 0.0
    costs = StepCosts(lambda: now)
    for _ in range(3):
        costs.begin()
        now += 60.0
        costs.add("plain", step(0, 0.0, 5.0))
    assert costs.other_ms == 0


def test_what_a_model_reads_after_others_drafted_is_no_cost_of_a_token() -> None:
    costs = StepCosts(lambda: 0.0)
    costs.add("draft", step(2, 9.0, 5.0))
    assert costs.draft_token_ms("draft") == 0.0, "it read the prompt"
    costs.add("draft", step(2, 2.0, 5.0))
    costs.add("lookup", step(8, 0.0, 5.0))
    costs.add("draft", step(2, 9.0, 5.0))
    assert costs.draft_token_ms("draft") == pytest.approx(1.0)
    costs.add("lookup", step(8, 0.0, 5.0))
    costs.add("draft", step(2, 1.0, 5.0))
    assert costs.draft_token_ms("draft") == pytest.approx(0.75), "a trial that was cheaper all the same"


def test_what_is_expected_holds_until_steps_tell_otherwise() -> None:
    costs = StepCosts(lambda: 0.0)
    costs.expect({1: 1.0, 9: 3.0}, {"draft": {1: 0.8, 4: 2.0}, "eagle": {3: 3.0}})
    assert costs.verify_ms()[1:10:4] == pytest.approx([1.0, 2.0, 3.0])
    assert (costs.draft_token_ms("draft"), costs.draft_token_ms("eagle")) == (0.5, 1.0)
    assert costs.further_token_ms("draft") == pytest.approx(0.4)
    assert costs.further_token_ms("eagle") == 1.0, "of one length nothing tells what is fixed"
    costs.add("draft", step(8, 40.0, 30.0))
    assert costs.verify_ms()[9] / costs.verify_ms()[1] == pytest.approx(3.0, rel=0.05), (
        "one late step slows all rows alike"
    )
    assert costs.draft_token_ms("draft") / costs.load.value < 3 * 0.5


@pytest.mark.parametrize("fixed", [0.0, 0.3, 2.0])
def test_what_a_further_token_takes_is_told_from_what_a_draft_takes(fixed: float) -> None:
    chance = random.Random(1)
    line = Line()
    for _ in range(200):
        tokens = chance.randint(1, 6)
        line.add(tokens, (fixed + 0.1 * tokens) * chance.uniform(0.9, 1.1))
    assert line.further_ms(fixed / 3.5 + 0.1) == pytest.approx(0.1, abs=0.07)
    assert line.further_ms(0.05) == 0.05, "no more than a token takes on average"


def test_while_drafts_have_one_length_a_further_token_takes_what_was_expected() -> None:
    for share in (0.25, 1.0):
        line = Line(share)
        assert line.further_ms(0.8) == pytest.approx(0.8 * share)
        for _ in range(300):
            line.add(1, 0.8)
        assert line.further_ms(0.8) == pytest.approx(0.8 * share)


def test_a_further_token_takes_no_less_than_nothing() -> None:
    line = Line()
    for tokens, ms in ((1, 3.0), (8, 1.0)) * 20:
        line.add(tokens, ms)
    assert line.further_ms(1.0) == 0.0


def test_the_table_is_worked_out_anew_where_it_may_be_another() -> None:
    """After what is expected, after rows that are not known well, and after so many checks of those that are."""
    costs = VerifyCosts()
    costs.expect({1: 1.0, 8: 4.0})
    assert costs.table()[8] == 4.0
    costs.expect({1: 1.0, 8: 2.0})
    assert costs.table()[8] == 2.0
    costs.add(16, 4.0)
    assert costs.table()[16] == 4.0
    before = costs.table()
    for _ in range(STEADY - 1):
        costs.add(8, 3.0)
        assert costs.table() == before
    costs.add(8, 3.0)
    assert costs.table()[8] > before[8]
