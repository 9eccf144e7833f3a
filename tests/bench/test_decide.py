"""From known costs and outcomes: who should draft, how far, and which acceptance a draft needs."""

from dataclasses import replace

import pytest

from specchat.bench.contender import Run
from specchat.bench.cost_model import even_survival, expected_tokens, step_cost
from specchat.bench.decide import (
    ALL,
    Costs,
    Decided,
    DraftChoice,
    DraftOutcome,
    best,
    cheaper_drafts,
    dearer_checks,
    decide,
    expected_speedup,
    fewer_kept,
    sooner_read,
)
from specchat.bench.decide_text import break_even_table, decided_text, decisions_table, in_words
from specchat.bench.interleaved import Sample
from specchat.bench.summary import Spread, verdict
from specchat.bench.verify_cost import VerifyCost
from specchat.engine.protocol.stats import Stats
from tests.bench.samples import prompt

DRAFT, LOOKUP = "draft x5", "lookup x8"
FLAT = Costs(10.0, (0.95,) + (1.0,) * 15, {DRAFT: 0.1, LOOKUP: 0.0}, {DRAFT: 0.05, LOOKUP: 0.05})
STEEP = replace(FLAT, checks=tuple(0.95 + 0.3 * row for row in range(16)))


def even(contender: str, acceptance: float, length: int) -> DraftOutcome:
    """Each token is accepted with the same probability, and every draft has `length` tokens."""
    return DraftOutcome(contender, tuple(even_survival(acceptance, length)), (1.0,) * length)


@pytest.mark.parametrize("costs", [FLAT, STEEP])
@pytest.mark.parametrize("acceptance", [0.1, 0.5, 0.9])
def test_the_choice_is_the_cost_models(costs: Costs, acceptance: float) -> None:
    outcome = even(DRAFT, acceptance, 5)
    speeds = {
        length: expected_tokens(outcome.kept[:length]) / step_cost(length, 0.1, costs.checks[length], 0.05)
        for length in range(1, 6)
    }
    length = max((0, *speeds), key=lambda length: speeds.get(length, 1.0))
    times = speeds.get(length, 1.0)
    chosen = best([outcome], costs)
    assert chosen.length == length
    assert chosen.times == pytest.approx(times)
    assert chosen.contender == (DRAFT if length else "plain")


def test_the_highest_estimate_is_taken() -> None:
    copied, drafted = even(LOOKUP, 0.6, 8), even(DRAFT, 0.9, 5)
    assert best([copied, drafted], FLAT).contender == DRAFT
    whole = best([replace(copied, kept=(1.0,) * 8), drafted], FLAT)
    assert (whole.contender, whole.length) == (LOOKUP, 8)
    assert whole.times == pytest.approx(9 / 1.05)
    assert best([], FLAT) == DraftChoice("plain", 0, 1.0)


def test_of_equal_estimates_the_shorter_draft_is_taken() -> None:
    """No draft ever came further than two tokens."""
    outcome = DraftOutcome(LOOKUP, (0.5, 0.5, 0.0), (1.0, 1.0, 0.0))
    assert best([outcome], FLAT).length == 2


def test_short_replies_pay_for_reading_and_for_what_is_beyond_their_ends() -> None:
    outcome = even(DRAFT, 0.9, 5)
    whole = expected_speedup(outcome, FLAT, 5)
    assert 1 / expected_speedup(replace(outcome, reading=0.2), FLAT, 5) == pytest.approx(1 / whole + 0.2)
    assert expected_speedup(replace(outcome, lost=0.25), FLAT, 5) == pytest.approx(whole / 1.25)
    assert best([replace(outcome, reading=1.0)], FLAT).contender == "plain"


def test_what_would_change_it() -> None:
    outcome = even(DRAFT, 0.6, 5)
    as_it_is = best([outcome], STEEP)
    assert as_it_is.contender == DRAFT
    assert best([outcome], dearer_checks(STEEP)).contender == "plain"
    assert best([outcome], cheaper_drafts(STEEP)).times > as_it_is.times
    assert sooner_read(replace(outcome, reading=0.2)).reading == pytest.approx(0.1)
    assert dearer_checks(STEEP).checks[:2] == pytest.approx((0.95, 1.55))
    assert fewer_kept(outcome).kept == pytest.approx(even_survival(0.48, 5))


def stats(steps: int, tokens: int, drafted: int, draft_ms: float, verify_ms: float, other_ms: float) -> Stats:
    return Stats(
        completion_tokens=tokens, num_steps=steps, num_draft_tokens=drafted,
        draft_ms=draft_ms, verify_ms=verify_ms, other_ms=other_ms,
    )  # fmt: skip


def sample(contender: str, run: Run, name: str, category: str) -> Sample:
    return Sample(contender, prompt(name, category), 0, run)


TEXT = tuple(range(20))
CHECKS = [VerifyCost(rows, Spread(4.0 + rows, 4.0, 20.0, 3), (4 + rows) / 5) for rows in range(1, 17)]
"""A row costs 5 ms, each more 1 ms."""
PLAIN = Run(TEXT, 0.25, 0.05, 1, stats(20, 20, 0, 0.0, 180.0, 20.0))
"""50 ms of reading the prompt; 9 ms of checks and 1 ms of the rest a step."""
GOOD = Run(
    TEXT, 0.195, 0.054, 1, stats(5, 20, 20, 40.0 + 6.0, 85.0, 10.0),
    drafted=(5, 5, 5, 5), kept=(5, 5, 5, 1), first_drafted=4, first_draft_ms=8.0 + 6.0,
)  # fmt: skip
"""Four tokens a step at 2 ms each; of reading the prompt the draft model made the target's 4 ms longer, and had 6 ms
left; one token was lost beyond the end."""
BAD = Run(
    TEXT, 0.6, 0.054, 1, stats(20, 20, 80, 160.0 + 6.0, 340.0, 40.0),
    drafted=(20, 20, 20, 20), kept=(0, 0, 0, 0), first_drafted=4, first_draft_ms=8.0 + 6.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def decided() -> Decided:
    samples = [
        sample(name, run, prompt_id, category)
        for prompt_id, category, drafts in (("a", "code", GOOD), ("b", "chat", BAD))
        for name, run in (("plain", PLAIN), ("auto", GOOD if drafts is GOOD else PLAIN), ("draft x4", drafts))
    ]
    return decide(samples, CHECKS)


def test_costs_come_from_steps_and_checks(decided: Decided) -> None:
    costs = decided.costs
    assert costs.plain_ms == pytest.approx(10.0)
    assert costs.checks[:3] == pytest.approx((0.9, 0.9 * 6 / 5, 0.9 * 7 / 5))
    assert costs.draft["draft x4"] == pytest.approx(0.2)
    assert costs.other["draft x4"] == pytest.approx(0.2)


def test_decisions_by_category(decided: Decided) -> None:
    code, chat, both = decided.decisions
    assert (code.category, code.prompts, code.best.contender) == ("code", 1, "draft x4")
    # Three tokens of nearly every draft are accepted, the fourth hardly ever: 0.8 of a plain step for 0.2 of a token.
    assert code.best.length == 3
    step = 4 * 0.2 + 0.9 * 9 / 5 + 0.2
    assert code.expected == pytest.approx(1 / (1.0 / 20 + (21 / 20) * step / (1 + 16 / 5)))
    assert code.measured == {"auto": pytest.approx(200 / 145), "draft x4": pytest.approx(200 / 145)}
    assert (chat.best, chat.expected) == (DraftChoice("plain", 0, 1.0), None)
    assert (both.category, both.prompts) == (ALL, 2)


def test_what_ran_slower_than_expected_is_not_the_best_by_estimate() -> None:
    """Its drafts accept as much as before, and all that it does takes twice as long."""
    assert GOOD.stats is not None
    slow = replace(GOOD, seconds=0.4, stats=replace(GOOD.stats, verify_ms=220.0))
    for run, name in ((GOOD, "draft x4"), (slow, "plain")):
        samples = [sample("plain", PLAIN, "a", "code"), sample("draft x4", run, "a", "code")]
        decision = decide(samples, CHECKS).decisions[-1]
        assert decision.best.contender == name
        assert decision.best.times <= max(1.0, 1.2 * decision.measured["draft x4"])


def test_break_even_is_told_for_each_length(decided: Decided) -> None:
    assert decided.break_even("draft x4", 4) == pytest.approx((4 * 0.2 + 0.9 * 9 / 5 + 0.2 - 1) / 4)
    _, row = break_even_table(decided).splitlines()
    assert row.split() == ["draft", "x4", "0.20", "0.20", "48%", "43%", "41%", "40%", "40%", "39%", "39%", "39%",
                           "4.0", "16%"]  # fmt: skip


def test_a_draft_that_can_never_pay_says_so(decided: Decided) -> None:
    dear = replace(decided, costs=replace(decided.costs, draft={"draft x4": 1.2}))
    assert "never" in break_even_table(dear)
    assert "A draft of 8 tokens by draft cannot pay; 16% were accepted." in in_words(dear)


def test_only_a_draft_model_reads_beside_the_target() -> None:
    """Whatever else makes a family's time before its first step longer is noise."""
    later = replace(PLAIN, seconds=PLAIN.seconds + 0.1)
    runs = {"plain": PLAIN, "lookup x4": later, "draft x4": later}
    decided = decide([sample(name, run, "a", "code") for name, run in runs.items()], CHECKS)
    assert decided.decisions[0].measured == {"lookup x4": 1.0, "draft x4": pytest.approx(200 / 300)}
    assert [outcome.reading for outcome in decided.outcomes] == [0.0, pytest.approx(10 / 20)]


def test_load_and_waits_decide_nothing() -> None:
    """One round of three is three times as slow, and in another a draft waits for a processor."""
    samples = []
    for repeat, (load, waited) in enumerate([(1.0, 0.0), (3.0, 0.0), (1.0, 500.0)]):
        for name, run, waits in (("plain", PLAIN, 0.0), ("draft x4", GOOD, waited)):
            assert run.stats is not None
            of_it = run.stats
            slow = replace(of_it, draft_ms=load * of_it.draft_ms, verify_ms=load * of_it.verify_ms,
                           other_ms=load * of_it.other_ms, waited_ms=waits)  # fmt: skip
            ran = load * run.seconds
            made = replace(run, seconds=ran + waits / 1e3, ran_seconds=ran, stats=slow)
            samples.append(Sample(name, prompt("a", "code"), repeat, made))
    assert decide(samples, CHECKS).decisions[0].measured == {"draft x4": pytest.approx(200 / 145)}


def test_it_is_said_in_words(decided: Decided) -> None:
    said = in_words(decided)
    times = f"{decided.decisions[0].measured['draft x4']:.2f}x"
    assert said[0] == f"draft was fastest, by estimate best with at most 3 tokens: code {times}."
    assert said[1] == "Nothing was faster than plain decoding: chat."
    assert "A draft of 8 tokens by draft pays where more than 39% are accepted; 16% were accepted." in said


def test_what_was_measured_goes_before_what_is_estimated(decided: Decided) -> None:
    """The estimate was highest for `cascade`, and `draft` was faster as both ran."""
    code, chat, both = decided.decisions
    code = replace(code, best=DraftChoice("cascade x8", 8, 3.0), measured=code.measured | {"cascade x8": 1.01})
    said = in_words(replace(decided, decisions=[code, chat, both]))
    assert said[0] == f"draft was fastest: code {code.measured['draft x4']:.2f}x."
    assert not any("cascade" in sentence for sentence in said)


def test_categories_of_one_choice_are_told_together(decided: Decided) -> None:
    code, chat, both = decided.decisions
    story = replace(code, category="story", best=DraftChoice("draft x4", 4, 1.25))
    code = replace(code, best=DraftChoice("draft x4", 2, 1.5))
    said = in_words(replace(decided, decisions=[code, story, chat, both]))
    times = f"{code.measured['draft x4']:.2f}x"
    assert said[0] == (
        f"draft was fastest, by estimate best with at most 2 to 4 tokens: code {times} and story {times}."
    )


def test_all_of_it_as_text(decided: Decided) -> None:
    text = decided_text(decided, "a machine", ["a note"])
    assert text.startswith("a machine; times are over plain decoding\n")
    overall = decided.decisions[-1]
    assert text.endswith(f"\n\na note\n\n{verdict(overall.measured, overall.prompts)}\n")
    assert decisions_table(decided) in text
    for words in ("in plain steps of 10.00 ms", "verifying 2x as dear", "acceptance 0.8x as likely", "In words:"):
        assert words in text


def test_one_category_is_all() -> None:
    samples = [sample(name, run, "a", "all") for name, run in (("plain", PLAIN), ("draft x4", GOOD))]
    decided = decide(samples, CHECKS)
    assert [d.category for d in decided.decisions] == [ALL]
    assert in_words(decided)[0].startswith("draft was fastest, by estimate best with at most 3 tokens: all ")
    assert not any("auto" in sentence for sentence in in_words(decided))


def test_without_drafts_plain_is_best() -> None:
    idle = replace(PLAIN, stats=stats(20, 20, 0, 0.0, 180.0, 10.0))
    decided = decide([sample(name, run, "a", "all") for name, run in (("plain", PLAIN), (LOOKUP, idle))], CHECKS)
    assert decided.decisions[0].best.contender == "plain"
    assert decided.outcomes[0].kept_share is None
    assert "lookup x8" in break_even_table(decided)
