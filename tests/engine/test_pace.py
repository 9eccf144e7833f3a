"""What ways of drafting promise, from what steps took and what drafts kept."""

import pytest

from specchat.engine.decoding.pace import Family, Shares
from specchat.engine.strategies import MAX_DRAFT_LENGTH


def test_shares_follow_a_change_and_forget_what_a_draft_could_not_have() -> None:
    shares = Shares()
    for _ in range(30):
        shares.add([False] * 8, 0.95)
    assert shares.values(0.9)[0] < 0.15
    for _ in range(30):
        shares.add([True] * 2, 0.95)
    values = shares.values(0.9)
    assert values[0] > 0.7
    assert values[5] > 0.3, "what failed at the sixth place long ago is forgotten"


def test_unknown_outcomes_count_neither_way() -> None:
    one, other = Shares(), Shares()
    one.add([True, None, None], 1.0)
    other.add([True], 1.0)
    assert one.values(0.5) == other.values(0.5)


@pytest.mark.parametrize(("stays", "draft_ms", "length"), [(0.95, 0.1, 12), (0.8, 0.1, 5), (0.2, 0.5, 1)])
def test_the_promise_is_that_of_leviathan(stays: float, draft_ms: float, length: int) -> None:
    """(1 - a^(n+1)) / (1 - a) tokens in D + v + o, at the length where that is the most."""
    family = Family(stays)
    family.draft_ms.add(draft_ms)
    table = [0.0, *(1 + row / 15 for row in range(MAX_DRAFT_LENGTH + 1))]
    family.review(table, 0.1, 1)
    promises = [
        (1 - stays ** (n + 1)) / (1 - stays) / (n * draft_ms + table[n + 1] + 0.1)
        for n in range(1, MAX_DRAFT_LENGTH + 1)
    ]
    assert family.best(MAX_DRAFT_LENGTH)[0] == pytest.approx(max(promises))
    assert family.best(MAX_DRAFT_LENGTH)[1] == promises.index(max(promises)) + 1 == length
    assert family.best(1) == (pytest.approx(promises[0]), 1)


def test_drafts_that_end_early_cost_less() -> None:
    whole, short = Family(0.7), Family(0.7, 0.9)
    for family in (whole, short):
        family.draft_ms.add(0.5)
        for _ in range(40):
            family.judged([True, False, False, False], 2)
        family.review([0.0, *(1 + row / 15 for row in range(MAX_DRAFT_LENGTH + 1))], 0.0, 1)
    assert short.steps[4][1] < whole.steps[4][1]


def test_forgetting_keeps_what_a_draft_costs() -> None:
    family = Family(0.9)
    family.draft_ms.add(0.5)
    for _ in range(20):
        family.judged([False] * 4, 4)
    family.review([1.0] * (MAX_DRAFT_LENGTH + 2), 0.0, 1)
    before = family.best(4)[0]
    family.forget()
    family.review([1.0] * (MAX_DRAFT_LENGTH + 2), 0.0, 1)
    assert family.best(4)[0] > before
    assert family.draft_ms.value == 0.5
