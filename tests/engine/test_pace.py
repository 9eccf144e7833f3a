"""Replies that decode in one pass: none that would go slower so than in turns."""

from dataclasses import dataclass, field

import pytest

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.reply.pace import LASTS, PREFERRED, STALE, STAYS, STEPS, ReplyPace, worthwhile


@dataclass
class Reply:
    name: str
    pace: ReplyPace = field(default_factory=lambda: ReplyPace(1))


def outcome(drafted: int = 0, draft_ms: float = 0.0) -> StepOutcome:
    return StepOutcome((), (0,) * drafted, (), 0, (), draft_ms, 0.0)


def reply(name: str, token_ms: float, share: int = 1) -> Reply:
    made = Reply(name, ReplyPace(share))
    for _ in range(STEPS):
        made.pace.add(token_ms, outcome(), 1, drafts=True)
    return made


def drafting(name: str, step_ms: float, drafted: int, tokens: int, draft_ms: float = 0.0) -> Reply:
    """A reply whose steps draft and add so many tokens."""
    made = Reply(name)
    made.pace.able = True
    for _ in range(STEPS):
        made.pace.add(step_ms, outcome(drafted, draft_ms), tokens, drafts=True)
    return made


def names(*replies: Reply, row_ms: float = 3.0, drafted_ms: float = 3.0) -> str:
    """Those chosen where a pass takes 10 ms, `row_ms` for each reply but the first, and `drafted_ms` for a draft's
    token."""
    chosen = worthwhile(replies, lambda count: (10 + row_ms * (count - 1), drafted_ms))
    return "".join(sorted(one.name for one in chosen))


def test_plain_replies_go_on_together_where_rows_are_cheap() -> None:
    several = [reply(name, 10.0) for name in "abcd"]
    assert names(*several) == "abcd"
    assert names(*several[:2]) == "ab"
    assert names(*several[:1]) == ""
    assert names(*several, row_ms=10.5) == ""


def test_one_whose_drafts_pay_more_stays_alone() -> None:
    """In turns of four a token of 2.5 ms takes 10 ms, in company 19 ms."""
    slow, quick = [reply(name, 10.0) for name in "abc"], reply("q", 2.5)
    assert names(*slow, quick) == "abc"
    assert names(slow[0], quick) == ""
    assert names(*slow, reply("q", 5.0)) == "abcq"


def test_drafts_in_company_are_those_that_cost_others_less_than_they_win() -> None:
    """A plain step of four takes 19 ms, 4.75 ms a token; drafts of four add three tokens for 4 times `drafted_ms`."""
    several = [drafting(name, 22.0, drafted=4, tokens=4) for name in "abcd"]
    assert names(*several, drafted_ms=3.0) == "abcd"
    assert all(one.pace.drafts for one in several)
    assert names(*several, drafted_ms=3.6) == "abcd"
    assert not any(one.pace.drafts for one in several)
    dear = [*several[:3], drafting("d", 66.0, drafted=4, tokens=4, draft_ms=3.0)]
    assert names(*dear, drafted_ms=3.0) == "abcd"
    assert [one.pace.drafts for one in dear] == [True, True, True, False]
    dear[3].pace.able = False
    assert names(*dear, drafted_ms=2.0) == "abcd"
    assert not dear[3].pace.drafts


def test_one_that_would_go_slower_than_in_turns_without_its_drafts_drafts() -> None:
    """Its drafts take 15 ms to win 14.25; in turns a token takes 22 ms, without drafts in company 55 ms."""
    dear = [*(drafting(name, 22.0, 4, 4) for name in "abc"), drafting("d", 22.0, 4, 4, draft_ms=3.0)]
    assert names(*dear, drafted_ms=3.0) == "abcd"
    assert all(one.pace.drafts for one in dear)
    dear[3].pace.able = False
    assert names(*dear, drafted_ms=3.0) == "abc"


def test_a_reply_alone_is_not_held_up_by_drafts_of_others() -> None:
    """In turns a token of `q` takes 12 ms; in company without drafts 10 ms, with those of the other 12.5 ms."""
    plain, other = reply("q", 6.0), drafting("d", 30.0, drafted=2, tokens=3)
    assert names(plain, other, row_ms=0.0, drafted_ms=0.5) == "dq"
    assert names(plain, other, row_ms=0.0, drafted_ms=1.25) == ""


def test_an_apps_chat_goes_no_slower_than_in_its_turns() -> None:
    """Of two replies it has two turns of three: at 10 ms a token it takes 15 ms, and 13 ms in company."""
    other = reply("o", 10.0)
    assert names(reply("c", 10.0, PREFERRED), other) == "co"
    assert names(reply("c", 8.0, PREFERRED), other) == ""


def test_a_pace_is_measured_first_and_from_time_to_time() -> None:
    first, other = Reply("f"), reply("o", 10.0)
    for _ in range(STEPS - 1):
        first.pace.add(10.0, outcome(), 1, drafts=True)
        assert names(first, other) == ""
    first.pace.add(10.0, outcome(), 1, drafts=True)
    assert names(first, other) == "fo"
    first.pace.together = True
    first.pace.add(13.0, outcome(), STALE, drafts=False)
    assert names(first, other) == "fo"
    first.pace.add(13.0, outcome(), STALE, drafts=True)
    assert names(first, other) == ""
    first.pace.together = False
    for _ in range(STEPS):
        assert names(first, other) == ""
        first.pace.add(1.0, outcome(), 1, drafts=True)
    assert first.pace.turn_ms == pytest.approx(1.0)
    assert names(first, other) == ""


def test_one_in_company_stays_where_turns_are_hardly_quicker() -> None:
    one, other = reply("a", 6.4), reply("b", 10.0)
    assert names(one, other) == ""
    one.pace.together = True
    assert STAYS > 13.0 / 2 / 6.4
    assert names(one, other) == "ab"


def test_one_that_ends_soon_joins_no_more_and_stays_where_it_is() -> None:
    one, other = drafting("a", 30.0, drafted=3, tokens=4), reply("b", 10.0)
    one.pace.left = 4 * LASTS
    assert names(one, other, drafted_ms=0.5) == "ab"
    one.pace.left -= 1
    assert names(one, other, drafted_ms=0.5) == ""
    one.pace.together = True
    assert names(one, other, drafted_ms=0.5) == "ab"


def test_one_without_memory_stays_alone() -> None:
    one, other = reply("a", 10.0), reply("b", 10.0)
    one.pace.refused = True
    assert names(one, other) == ""
