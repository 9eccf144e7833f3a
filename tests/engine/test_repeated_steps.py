"""Steps at an end: none goes on behind it, and plain ones repeated after it leave text and cache as they are."""

from dataclasses import replace

import pytest

from specchat.engine.protocol.comparison import Comparison
from specchat.engine.protocol.events import PlainKnown, Step
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.session import Session
from tests.engine.repeated_steps import SAMPLING, TIMES, always_repeated, chat, outcome


def test_text_and_cache_stay_whatever_drafts(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    strategies = [Speculation(one.name, 3) for one in session.info.strategies if one.available]
    without = [outcome(chat(session, one)) for one in strategies]
    made = always_repeated(monkeypatch)
    assert [outcome(chat(session, one)) for one in strategies] == without
    assert len(made) == 2 * TIMES * len(strategies)
    assert all(outcome.drafted == 0 and outcome.verify_ms > 0 for outcome in made)


def test_a_reply_goes_on_after_them(session: Session) -> None:
    """A step that was dropped has left neither tokens nor counts of penalties."""

    def written(repeats: int) -> list[int]:
        prompt, drafter = [5, 6, 7, 5, 6], session.runner.drafters["lookup"]
        session.forget()
        session.runner.target.begin(prompt)
        drafter.begin(prompt, frozenset())
        reply = session.runner.reply(SAMPLING, prompt, frozenset())
        while len(reply.committed) < 30:
            reply.step(drafter, 3, "coupled")
            for _ in range(repeats):
                reply.repeat()
        return reply.committed[:30]

    assert written(2) == written(0)


def test_no_step_goes_on_behind_an_end(session: Session) -> None:
    """Text and cache; a reply that cut its own tokens would hide it."""
    prompt, behind = [5, 6, 7, 5, 6], 0

    def write(strategy: str, ends: frozenset[int]) -> tuple[list[int], int]:
        drafter, target = session.runner.drafters[strategy], session.runner.target
        session.forget()
        target.begin(prompt)
        drafter.begin(prompt, ends)
        reply = session.runner.reply(SAMPLING, prompt, ends)
        while len(reply.committed) < 20 and reply.committed[-1] not in ends:
            last = reply.step(drafter, 6, "coupled")
        return reply.committed, last.accepted

    text, _ = write("plain", frozenset())
    for strategy in (one.name for one in session.info.strategies if one.available and one.name != "plain"):
        for at in (9, 18):
            end = text[at]
            wanted = text[: text.index(end, len(prompt)) + 1]
            written, accepted = write(strategy, frozenset([end]))
            assert written == wanted, strategy
            assert len(session.runner.target.tokens) <= len(wanted), strategy
            behind += accepted > 0
    assert behind > 5, "ends amid drafts"


def test_they_tell_nothing_of_the_rest_of_a_step(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is processed between them."""
    costs = session.runner.executor.costs
    request = Generate(1, (Message("user", "ab"),), SAMPLING, Limits(12), Speculation("draft", 3))
    made = always_repeated(monkeypatch)
    before = costs._other.count
    steps = sum(isinstance(event, Step) for event in session.generate(request))
    assert len(made) == TIMES
    assert costs._other.count - before == steps - 1


def test_what_they_tell_comes_with_the_last_step(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    always_repeated(monkeypatch)
    steps = [event for event in chat(session, Speculation("draft", 3)) if isinstance(event, Step) and event.id == 1]
    assert not any(step.plain_known for step in steps[:-1])
    assert [known.strategy for known in steps[-1].plain_known] == ["draft"]


def test_a_cancelled_reply_repeats_none(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelling:
        polled = 0

        def poll(self) -> Cancel | None:
            self.polled += 1
            return Cancel(1) if self.polled > 3 else None

    made = always_repeated(monkeypatch)
    request = Generate(1, (Message("user", "Tell me."),), SAMPLING, Limits(60), Speculation("draft", 3), cold=True)
    assert len(list(session.generate(request, Cancelling()))) < 20
    assert made == []


def test_what_is_known_after_a_reply_counts_for_the_steps_before_it() -> None:
    step = Step(
        1, (), 2, 2, 2, 3, 1.0, 2.0, 0.0, 0, "draft", usual_ms=3.0, plain_ms=6.0, plain_error=0.3
    )  # fmt: skip
    last = replace(step, plain_known=(PlainKnown("draft", 4.0, 0.05), PlainKnown("lookup", 9.0, 0.01)))
    unsure, sure = Comparison.of([step] * 20), Comparison.of([*[step] * 19, last])
    assert unsure.speedup is None
    assert sure.speedup is not None
    assert sure.speedup.times == pytest.approx(4.0)
    for wrong in (
        PlainKnown("draft", float("nan"), 0.01),
        PlainKnown("draft", -1.0, 0.01),
        PlainKnown("draft", 1.0, 0.0),
    ):
        assert Comparison.of([*[step] * 19, replace(step, plain_known=(wrong,))]).speedup is None
