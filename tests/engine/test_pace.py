"""Replies that decode in one pass: none that would go slower so than in turns."""

from dataclasses import dataclass, field

import pytest

from specchat.engine.reply.pace import PREFERRED, STALE, STAYS, STEPS, ReplyPace, worthwhile


@dataclass
class Reply:
    name: str
    pace: ReplyPace = field(default_factory=lambda: ReplyPace(1))


def reply(name: str, token_ms: float, share: int = 1) -> Reply:
    made = Reply(name, ReplyPace(share))
    for _ in range(STEPS):
        made.pace.add(token_ms, 1, drafts=True)
    return made


def names(*replies: Reply, row_ms: float = 3.0) -> str:
    """Those chosen where a pass takes 10 ms, and `row_ms` for each row but the first."""
    return "".join(sorted(one.name for one in worthwhile(replies, lambda count: 10 + row_ms * (count - 1))))


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


def test_an_apps_chat_goes_no_slower_than_in_its_turns() -> None:
    """Of two replies it has two turns of three: at 10 ms a token it takes 15 ms, and 13 ms in company."""
    other = reply("o", 10.0)
    assert names(reply("c", 10.0, PREFERRED), other) == "co"
    assert names(reply("c", 8.0, PREFERRED), other) == ""


def test_a_pace_is_measured_first_and_from_time_to_time() -> None:
    first, other = Reply("f"), reply("o", 10.0)
    for _ in range(STEPS - 1):
        first.pace.add(10.0, 1, drafts=True)
        assert names(first, other) == ""
    first.pace.add(10.0, 1, drafts=True)
    assert names(first, other) == "fo"
    first.pace.together = True
    first.pace.add(13.0, STALE, drafts=False)
    assert names(first, other) == "fo"
    first.pace.add(13.0, STALE, drafts=True)
    assert names(first, other) == ""
    first.pace.together = False
    for _ in range(STEPS):
        assert names(first, other) == ""
        first.pace.add(1.0, 1, drafts=True)
    assert first.pace.turn_ms == pytest.approx(1.0)
    assert names(first, other) == ""


def test_one_in_company_stays_where_turns_are_hardly_quicker() -> None:
    one, other = reply("a", 6.4), reply("b", 10.0)
    assert names(one, other) == ""
    one.pace.together = True
    assert STAYS > 13.0 / 2 / 6.4
    assert names(one, other) == "ab"


def test_one_without_memory_stays_alone() -> None:
    one, other = reply("a", 10.0), reply("b", 10.0)
    one.pace.refused = True
    assert names(one, other) == ""
