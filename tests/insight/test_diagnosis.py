"""What the engine panel says about drafting, and what it advises."""

from dataclasses import replace

import pytest

from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Changed, Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import DraftFacts, PlainFacts, StrategyStatus
from specchat.insight.diagnosis import Advice, Advisor, Diagnosis, within_reach
from specchat.insight.ledger import Ledger
from specchat.insight.projection import project
from tests.fake import INFO as FAKE
from tests.fake_steps import compared, steps
from tests.insight.replies import finished, reply_of, step_of, times_faster

INFO = replace(FAKE, name="demo")
NO_LOOKUP = tuple(status for status in INFO.strategies if status.name != "lookup")


def diagnose(reply: Reply | None, ledger: Ledger | None = None, **changes: object) -> Diagnosis:
    """With the settings that the reply ended with, for a pair without lookup unless `changes` say otherwise."""
    info = replace(INFO, **{"strategies": NO_LOOKUP} | changes)
    chosen = reply.record.speculation if reply else Speculation()
    return Advisor(ledger or Ledger()).diagnose(reply, info, chosen, {"draft": 5, "lookup": 6})


@pytest.mark.parametrize(
    ("accepted", "strategy", "words", "pays"),
    [
        (
            (4, 5),
            "draft",
            "drafting pays: 89 % of drafts accepted; a step writes 5.4 tokens in the time of 1.5",
            True,
        ),
        (
            (0, 0, 1),
            "draft",
            "slower than plain: 7 % of drafts accepted; a step writes 1.3 tokens in the time of 1.5",
            False,
        ),
        ((0,), "plain", "drafting is off", None),
        ((3, 2), "lookup", "drafting pays: ", True),
    ],
)
def test_the_verdict(accepted: tuple[int, ...], strategy: str, words: str, pays: bool | None) -> None:
    found = diagnose(finished(accepted, strategy))
    assert found.words.startswith(words)
    assert found.pays is pays


@pytest.mark.parametrize(
    ("times", "words"),
    [(1.06, "drafting pays"), (1.04, "drafting is even"), (0.96, "drafting is even"), (0.94, "slower")],
)
def test_the_verdict_is_even_where_the_figure_is(times: float, words: str) -> None:
    reply = finished((4, 5), "draft")
    speed = reply.tally.tokens_per_second / times
    assert reply.end.stats is not None
    reply.end = replace(
        reply.end, stats=replace(reply.end.stats, speedup_vs_plain=reply.end.stats.tokens_per_second / speed)
    )
    assert diagnose(reply).words.startswith(words)


def test_nothing_is_said_to_be_drafted_or_not_of_a_reply_without_steps() -> None:
    imported = reply_of([], Speculation("plain"))
    assert diagnose(imported) == Diagnosis("not measured: no steps are recorded")


def test_auto_tells_who_drafted() -> None:
    steps_of = [*[step_of(4, 5)] * 14, *[step_of(5, 6, strategy="lookup")] * 5, step_of(0, 0, strategy="plain")]
    found = diagnose(reply_of(steps_of, Speculation.of("auto")), strategies=INFO.strategies)
    assert found.words == "drafting pays: auto took draft in 70 % of steps, took lookup in 25 %, did not draft in 5 %"
    assert (found.pays, found.advice) == (True, None)
    seldom = diagnose(reply_of([step_of(4, 5)] * 400 + [step_of(1, 1, strategy="medusa")], Speculation.of("auto")))
    assert seldom.words.endswith("auto took draft in 100 % of steps")
    nothing = diagnose(reply_of([step_of(0, 0, strategy="plain")] * 8, Speculation.of("auto")))
    assert nothing.words == "auto does not draft: plain is fastest here"


def test_cascade_tells_who_drafted() -> None:
    families = ["draft"] * 12 + ["ngram"] * 6 + ["cascade"] * 2
    found = diagnose(reply_of([step_of(4, 5, strategy=name) for name in families], Speculation.of("cascade")))
    assert found.words.endswith("cascade took draft in 60 % of steps, took ngram in 30 %, took both in 10 %")


def test_nothing_is_claimed_before_it_was_measured() -> None:
    few = reply_of([step_of(3, 5)] * 3, Speculation.of("draft", 5))
    assert diagnose(few) == Diagnosis("speed-up unknown: reply too short to measure")
    few.state = "writing"
    assert diagnose(few) == Diagnosis("measuring whether drafting pays")
    unknown = diagnose(finished((4, 5), plain=0.0), plain=PlainFacts())
    assert unknown.words.startswith("plain was not measured, so no verdict: 89 % of drafts accepted")
    assert (unknown.pays, unknown.advice) == (None, None)
    assert diagnose(None).words == "without drafting: 100 tok/s"
    assert diagnose(None, plain=PlainFacts()).words == ""


def test_drafts_that_are_never_accepted_are_told_so() -> None:
    vain = reply_of([step_of(0, 5, check_ms=(10, 3))] * 60, Speculation.of("draft", 5))
    assert diagnose(vain).words.startswith("slower than plain: no draft was accepted; each step cost as much as")


def test_a_running_reply_is_judged_since_its_latest_change() -> None:
    reply = finished((5, 4))
    reply.end = replace(reply.end, stats=None)
    assert diagnose(reply).pays
    reply.changed(Changed(1, Speculation.of("lookup"), 200))
    assert diagnose(reply) == Diagnosis()
    for step in compared(steps("word " * 90, (0, 0, 1), "lookup"), 100.0):
        reply.step(step)
    assert diagnose(reply).pays is False


def test_a_draft_that_loses_gives_way_to_plain() -> None:
    hopeless = reply_of([step_of(0, 5)] * 30, Speculation.of("draft", 5), plain=90.0)
    advice = diagnose(hopeless).advice
    assert advice == Advice(Speculation("plain"), 1.0, "measured")
    assert advice.words == "turn drafting off, about 2.3x faster than now"


def test_another_length_is_advised_where_the_steps_show_it() -> None:
    cut = reply_of([step_of(accepted, 8) for accepted in (2, 1, 2, 3) * 10], Speculation.of("draft", 8), plain=90.0)
    advice, found = diagnose(cut).advice, project(cut)
    assert found is not None
    assert advice is not None
    assert (advice.speculation.strategy, advice.evidence) == ("draft", "projected")
    assert advice.speculation.draft_length == within_reach(found) < 4
    assert advice.times == pytest.approx(found.outlooks[advice.speculation.draft_length].times)
    assert diagnose(reply_of(cut.steps[:12], Speculation.of("draft", 8), plain=90.0)).advice is None


def test_no_length_is_advised_far_beyond_what_was_tried() -> None:
    perfect = project(reply_of([step_of(2, 2)] * 30, Speculation.of("draft", 2)))
    assert perfect is not None
    assert perfect.best.length == 15
    assert within_reach(perfect) == 4


def asked(reply: Reply, prompt: str) -> Reply:
    chat = Conversation()
    return answered(reply, chat.ask(prompt), chat)


def answered(reply: Reply, turn: Turn, chat: Conversation) -> Reply:
    chat.answer(turn, reply)
    return reply


def unsure(step: Step, error: float) -> Step:
    """The same step where plain decoding's time is known so well only."""
    return replace(step, plain_error=error)


SLOW = [step_of(0, 1)] * 60
SWIFT = [times_faster(step_of(2, 3, strategy="swift"), 2)] * 30


def test_what_another_strategy_measured_is_advised_for_the_same_prompt_and_pair_only() -> None:
    """How much of a draft is kept is a matter of the text."""
    chat = Conversation()
    turn = chat.ask("Tell a story.")
    slow = answered(reply_of(SLOW, Speculation.of("draft", 1), plain=60.0), turn, chat)
    same, changed = (answered(reply_of(SWIFT, Speculation.of("swift", 3), plain=60.0), turn, chat) for _ in range(2))
    changed.changed(Changed(1, Speculation.of("draft"), 90))
    ledger, other = Ledger(), Ledger()
    ledger.add(same)
    other.add(changed)
    other.add(reply_of(SWIFT, Speculation.of("swift", 3), plain=60.0))
    other.add(asked(reply_of(SWIFT, Speculation.of("swift", 3), plain=60.0), "Tell a story."))
    other.add(answered(reply_of(SWIFT, Speculation.of("swift", 3), plain=60.0, name="another pair"), turn, chat))
    advice = diagnose(slow, ledger).advice
    assert advice is not None
    assert (advice.label, advice.evidence) == ("swift x3", "measured")
    assert advice.times == pytest.approx(same.tally.compared.estimate.times)
    assert diagnose(slow, other).advice is None
    statuses = tuple(StrategyStatus(name, name != "swift") for name in ("plain", "draft", "swift"))
    assert diagnose(slow, ledger, strategies=statuses).advice is None


@pytest.mark.parametrize(
    ("faster", "error", "advised"), [(1.5, 0.0, True), (1.5, 0.05, True), (1.15, 0.05, False), (1.03, 0.0, False)]
)
def test_no_strategy_is_advised_over_auto_that_may_be_no_faster(faster: float, error: float, advised: bool) -> None:
    """Where the two intervals overlap either may be the faster one."""
    chat = Conversation()
    turn = chat.ask("Tell a story.")
    used, steps_of = Speculation.of("auto"), [unsure(step_of(4, 5), error)] * 30
    present = answered(reply_of(steps_of, used), turn, chat)
    ledger = Ledger()
    quick = [times_faster(step, faster) for step in steps_of]
    ledger.add(answered(reply_of(quick, Speculation.of("draft", 5)), turn, chat))
    advice = diagnose(present, ledger).advice
    assert (advice is not None) == advised
    if advice is not None:
        assert (advice.label, advice.evidence) == ("draft x5", "measured")


COPIED = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen " * 6


def test_lookup_is_estimated_on_the_text_itself() -> None:
    reply = asked(finished((0, 1), "draft", plain=100.0, text=COPIED), COPIED)
    advice = diagnose(reply, strategies=INFO.strategies).advice
    assert advice is not None
    assert (advice.label, advice.evidence) == ("lookup x6", "estimated")
    assert advice.words.endswith("faster than now (estimated)")
    fresh = " ".join(f"word{n}" for n in range(80))
    new = asked(finished((0, 1), "draft", plain=100.0, text=fresh), "Write something new.")
    other = diagnose(new, strategies=INFO.strategies).advice
    assert other is None or other.speculation.strategy != "lookup"


def test_after_a_plain_reply_lookup_is_estimated_only_where_checks_were_measured() -> None:
    reply = asked(finished((0,), "plain", plain=100.0, text=COPIED), COPIED)
    assert diagnose(reply, strategies=INFO.strategies).advice is None
    ledger = Ledger()
    ledger.add(finished((1, 2)))
    advice = diagnose(reply, ledger, strategies=INFO.strategies).advice
    assert advice is not None
    assert advice.label == "lookup x6"


def test_a_measured_lookup_is_not_estimated_again() -> None:
    ledger, chat = Ledger(), Conversation()
    turn = chat.ask(COPIED)
    ledger.add(answered(finished((0,), "lookup"), turn, chat))
    reply = answered(finished((0, 1), "draft", plain=100.0, text=COPIED), turn, chat)
    advice = diagnose(reply, ledger, strategies=INFO.strategies).advice
    assert advice is None or advice.speculation.strategy != "lookup"


def test_advice_is_for_what_is_set() -> None:
    reply = reply_of([step_of(0, 5)] * 30, Speculation.of("draft", 5), plain=90.0)
    advisor = Advisor(Ledger())
    assert advisor.diagnose(reply, INFO, Speculation.of("draft", 5), {}).advice is not None
    for chosen in (Speculation(), Speculation.of("draft", 2), Speculation.of("lookup")):
        assert advisor.diagnose(reply, INFO, chosen, {}).advice is None
    assert advisor.diagnose(reply, replace(INFO, name="other"), Speculation.of("draft", 5), {}).advice is None
    assert advisor.diagnose(reply, None, Speculation.of("draft", 5), {}).advice is None


def test_advice_follows_a_growing_reply() -> None:
    reply = reply_of([step_of(3, 5)] * 20, Speculation.of("draft", 5), plain=90.0)
    reply.state, reply.end = "writing", replace(reply.end, stats=None)
    advisor, info = Advisor(Ledger()), replace(INFO, strategies=NO_LOOKUP)
    assert advisor.diagnose(reply, info, Speculation.of("draft", 5), {}).pays
    for step in compared([step_of(0, 5)] * 200, 90.0):
        reply.step(step)
    advice = advisor.diagnose(reply, info, Speculation.of("draft", 5), {}).advice
    assert advice is not None
    assert advice.label == "plain"


@pytest.mark.parametrize(
    ("strategy", "held", "told"), [("draft", 40, True), ("draft", 4000, False), ("lookup", 40, False)]
)
def test_a_draft_that_a_chat_is_too_long_for_is_named(strategy: str, held: int, told: bool) -> None:
    steps = [replace(step_of(0, 0, strategy="plain"), context_used=100 + at) for at in range(8)]
    found = diagnose(reply_of(steps, Speculation.of(strategy)), draft=DraftFacts(1_000_000, context=held))
    assert found.words.startswith("the draft model holds 40 tokens: in a longer chat it drafts nothing") == told


@pytest.mark.parametrize("waited_ms", [0.0, 5.0])
@pytest.mark.parametrize("strategy", ["draft", "plain"])
def test_a_reply_that_ran_in_no_time_advises_nothing(strategy: str, waited_ms: float) -> None:
    """As a file may claim."""
    step = step_of(4, 5, draft_ms=0.0, check_ms=(0.0, 0.0), other_ms=0.0)
    reply = reply_of([step_of(4, 5)] * 20, Speculation.of(strategy))
    timeless = replace(step, waited_ms=waited_ms)
    reply.record.steps[:] = [timeless] * 20
    assert project(reply) is None
    assert project(reply, 10) is None
    for tally in (reply.tally, reply.stretch):
        tally.draft_ms = tally.verify_ms = tally.other_ms = 0.0
        tally.waited_ms = 20 * waited_ms
    found = diagnose(reply, strategies=INFO.strategies)
    assert found.words
    assert found.advice is None
