"""The cost model's formulas, against the closed forms of Leviathan et al. 2023."""

import pytest

from specchat.bench.cost_model import (
    break_even,
    even_survival,
    expected_tokens,
    mean_step_cost,
    speed_up,
    step_cost,
)


@pytest.mark.parametrize(("acceptance", "length"), [(0.0, 5), (0.3, 1), (0.7, 5), (0.95, 15)])
def test_even_acceptance_gives_the_closed_form(acceptance: float, length: int) -> None:
    closed = (1 - acceptance ** (length + 1)) / (1 - acceptance)
    assert expected_tokens(even_survival(acceptance, length)) == pytest.approx(closed, rel=1e-12)


def test_what_always_stays_adds_a_token_a_place() -> None:
    assert expected_tokens(even_survival(1.0, 7)) == 8
    assert expected_tokens([]) == 1


def test_a_step_of_all_its_parts() -> None:
    step = step_cost(4, 0.1, 1.2, 0.3)
    assert step == pytest.approx(1.9)
    assert speed_up(3.8, step) == pytest.approx(2.0)


def test_drafts_of_different_lengths_cost_their_mean() -> None:
    """Half of the drafts have three tokens, a quarter has one, a quarter none."""
    checks = [1.0, 1.1, 1.3, 1.7]
    each = [step_cost(length, 0.2, checks[length], 0.1) for length in (3, 3, 1, 0)]
    assert mean_step_cost([0.75, 0.5, 0.5], 0.2, checks, 0.1) == pytest.approx(sum(each) / 4)
    assert mean_step_cost([], 0.2, checks, 0.1) == pytest.approx(1.1)


def test_a_draft_pays_just_above_its_break_even() -> None:
    share = break_even(4, 0.1, 1.3, 0.05)
    assert share == pytest.approx(0.1875)
    step = step_cost(4, 0.1, 1.3, 0.05)
    assert speed_up(1 + 4 * share, step) == pytest.approx(1.0)
    assert break_even(4, 1.0, 1.3) > 1
