"""Costs, projections, the ledger and replays, on steps whose costs are known."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat import figures
from specchat.chat.record import Record, speculation_label
from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Changed, Drafted, Finished, Started, Step
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.stats import Stats
from specchat.insight.costs import CheckCost, Checks, DraftCost
from specchat.insight.ledger import Ledger
from specchat.insight.lookup import potential
from specchat.insight.projection import Survival, outlook, project, survival
from specchat.insight.replay import PACES, Playback, Timeline
from specchat.tui.screens.ledger import ledger_rows
from specchat.tui.screens.what_if import source_words
from tests.fake import steps
from tests.insight.replies import finished, reply_of, step_of, times_faster

DRAFT, FIRST, MORE, OTHER = 2.0, 10.0, 1.0, 0.5
"""Milliseconds of a step from `step_of`."""


def speed(length: int, tokens: float) -> float:
    """The closed form for steps that always draft `length` tokens."""
    return 1000 * tokens / (DRAFT * length + FIRST + MORE * length + OTHER)


# Costs


def test_what_a_draft_takes_is_told_by_drafts_of_other_lengths() -> None:
    """A model goes over its tokens at once, and for the first draft it read the prompt."""
    lengths = ((4, 30.0), (8, 0.0), (2, 0.0))
    made = [replace(step_of(0, drafted), draft_ms=2.0 + 0.5 * drafted + read) for drafted, read in lengths]
    found = DraftCost.of(made)
    assert (found.fixed_ms, found.token_ms, found.reading_ms) == pytest.approx((2.0, 0.5, 30.0))
    one = DraftCost.of(made[:1])
    assert (one.fixed_ms, one.token_ms, one.reading_ms) == pytest.approx((0.0, 8.5, 0.0))


def test_checks_cost_their_means_and_lines_between() -> None:
    cost = CheckCost.of(Checks({2: (2, 20.0), 6: (1, 18.0)}))
    assert [cost.at(rows) for rows in (2, 4, 6)] == [10, 14, 18]
    assert [cost.at(rows) for rows in (1, 8)] == [8, 22]


def test_more_rows_never_cost_less() -> None:
    cost = CheckCost.of(Checks({1: (1, 10.0), 2: (1, 14.0), 3: (3, 30.0), 4: (1, 20.0)}))
    assert cost.milliseconds == (10, 11, 11, 20)


def test_a_single_number_of_rows_is_taken_as_flat_unless_one_row_is_known() -> None:
    checks = Checks({6: (4, 60.0)})
    assert CheckCost.of(checks).at(16) == CheckCost.of(checks).at(1) == 15
    assert CheckCost.of(checks, one_row_ms=10.0).at(11) == pytest.approx(20)
    assert CheckCost.of(Checks({1: (1, 12.0), 6: (1, 15.0)}), one_row_ms=1.0).at(1) == 12
    with pytest.raises(ValueError):
        CheckCost.of(Checks())


@given(st.dictionaries(st.integers(1, 16), st.floats(0.1, 100), min_size=1))
def test_costs_rise_and_are_never_negative(means: dict[int, float]) -> None:
    cost = CheckCost.of(Checks({rows: (1, ms) for rows, ms in means.items()}))
    values = [cost.at(rows) for rows in range(1, 17)]
    assert values[0] >= 0
    assert all(after >= before - 1e-9 for before, after in pairwise(values))


# Projection


def test_the_projection_is_the_closed_form() -> None:
    alpha, shares = 0.8, tuple(0.8**k for k in range(1, 16))
    cost = CheckCost.of(Checks({1: (1, FIRST), 2: (1, FIRST + MORE)}))
    of, draft = Survival(shares, (1.0,) * 15, 5), DraftCost(0.0, DRAFT)
    outlooks = outlook(of, draft, cost, OTHER, plain=80.0)
    for length in range(1, 16):
        expected = (1 - alpha ** (length + 1)) / (1 - alpha)
        assert outlooks[length].tokens_per_step == pytest.approx(expected)
        assert outlooks[length].tokens_per_second == pytest.approx(speed(length, expected))
        assert outlooks[length].times == pytest.approx(speed(length, expected) / 80)
        assert outlooks[length].basis == ("projected" if length <= 5 else "extrapolated")
    assert (outlooks[0].tokens_per_second, outlooks[0].times, outlooks[0].basis) == (80, 1, "measured")
    assert outlook(of, draft, cost, OTHER, plain=0)[0].tokens_per_second == pytest.approx(speed(0, 1))


def test_checks_that_drafting_had_begun_are_not_those_of_others() -> None:
    """A plain row, or another family's check, says nothing of what is left to do after the first layers."""
    begun = [step_of(kept, 3, check_ms=(4.0, 0.2), strategy="early-exit") for kept in (3, 1, 0, 3)]
    others = [step_of(2, 3), step_of(0, 0, strategy="plain")]
    plain = 1000 / (FIRST + OTHER)
    alone = project(reply_of(begun, Speculation.of("early-exit", 3), plain=plain))
    among = project(reply_of([*others, *begun], Speculation.of("early-exit", 3), plain=plain))
    assert alone is not None
    assert among is not None
    assert among.rows == (4,)
    assert not among.one_row_from_plain
    speeds = [[outlook.tokens_per_second for outlook in found.outlooks[1:]] for found in (alone, among)]
    assert speeds[0] == pytest.approx(speeds[1])
    assert Checks.of([*others, *begun]).rows == (1, 4)
    assert Checks.of([*others, *begun]).sums[4][0] == 1


def test_a_reply_projects_to_what_was_measured_at_its_own_length() -> None:
    made = [step_of(accepted, 5) for accepted in (5, 0, 3, 5, 1, 2, 5, 4)]
    reply = reply_of(made, Speculation.of("draft", 5))
    found = project(reply)
    assert found is not None
    assert found.outlooks[5].tokens_per_second == pytest.approx(reply.tally.tokens_per_second)
    assert (found.steps, found.longest, found.rows) == (8, 5, (6,))


def test_shorter_drafts_are_these_ones_cut() -> None:
    kept = (5, 0, 3, 5, 1, 2, 5, 4)
    one_row = 1000 / (FIRST + OTHER)
    found = project(reply_of([step_of(accepted, 5) for accepted in kept], Speculation.of("draft", 5), plain=one_row))
    assert found is not None
    for length in range(1, 6):
        tokens = 1 + sum(min(accepted, length) for accepted in kept) / len(kept)
        assert found.outlooks[length].tokens_per_second == pytest.approx(speed(length, tokens))


def test_drafts_that_stop_early_cost_what_they_draft() -> None:
    made = [step_of(0, 1), step_of(2, 2), step_of(4, 4), step_of(1, 3)] * 3
    found = project(reply_of(made, Speculation.of("draft", 4), plain=1000 / (FIRST + OTHER)))
    assert found is not None
    for length in (1, 2, 3, 4):
        tokens = 1 + sum(min(step.accepted, length) for step in made) / len(made)
        drafted = sum(min(step.drafted, length) for step in made) / len(made)
        assert found.outlooks[length].tokens_per_second == pytest.approx(speed_of(tokens, drafted))


def speed_of(tokens: float, drafted: float) -> float:
    return 1000 * tokens / (DRAFT * drafted + FIRST + MORE * drafted + OTHER)


def test_lookup_steps_without_a_hit_count() -> None:
    made = [step_of(0, 0, strategy="lookup"), step_of(4, 4, strategy="lookup")] * 5
    found = project(reply_of(made, Speculation.of("lookup", 4)))
    assert found is not None
    assert found.outlooks[4].tokens_per_second == pytest.approx(speed_of(3, 2))
    assert found.outlooks[2].tokens_per_second == pytest.approx(speed_of(2, 1))
    assert found.rows == (1, 5)


def test_beyond_what_was_drafted_it_goes_on_as_it_ended() -> None:
    shares = survival([step_of(accepted, 2) for accepted in (0, 1, 2, 2) * 10], [2] * 40)
    assert shares.kept[:2] == (0.75, 0.5)
    assert shares.kept[2] == pytest.approx(0.5 * 2 / 3)
    assert shares.drafted == (1.0,) * 15


def tree_of(accepted: int, *chances: float) -> Step:
    """A step whose tree is a path of kept tokens with the first chances, and a refused token at once for each other.

    It costs what a chain of so many tokens does.
    """
    kept = [Drafted(" a", chance, number - 1) for number, chance in enumerate(chances[:accepted])]
    others = [Drafted(f" {number}", chance, -1) for number, chance in enumerate(chances[accepted:])]
    return replace(step_of(accepted, len(chances)), tested=accepted, drafts=(*kept, *others))


def test_a_smaller_tree_is_this_one_without_its_least_likely_tokens() -> None:
    """Of these four tokens the first tree kept the 1st and the 4th likeliest, the second the 2nd, the third none."""
    made = [tree_of(2, 0.8, 0.1, 0.5, 0.2), tree_of(1, 0.4, 0.5, 0.2, 0.1), tree_of(0, 0.4, 0.3, 0.2, 0.1)]
    reply = reply_of(made, Speculation.of("draft", 4), plain=1000 / (FIRST + OTHER))
    found = project(reply)
    assert found is not None
    per_step = [1, 1 + 1 / 3, 1 + 2 / 3, 1 + 2 / 3, 2]
    assert [outlook.tokens_per_step for outlook in found.outlooks[:5]] == pytest.approx(per_step)
    for length in range(1, 5):
        assert found.outlooks[length].tokens_per_second == pytest.approx(speed(length, per_step[length]))
    assert found.outlooks[4].tokens_per_second == pytest.approx(reply.tally.tokens_per_second)
    assert found.outlooks[5].tokens_per_step == pytest.approx(2 + 3 / 12)
    assert found.rows == (5,)


def test_trees_count_only_as_far_as_they_were_asked_for() -> None:
    made = [tree_of(1, 0.4, 0.5)] * 2 + [tree_of(0, 0.4, 0.3, 0.2, 0.1), tree_of(1, 0.1, 0.5, 0.4, 0.2)]
    shares = survival(made, [2, 2, 4, 4])
    assert shares.kept[:4] == (0.0, 0.5, 0.0, 0.5)
    assert shares.drafted[:4] == (1.0,) * 4


def test_a_change_of_length_counts_each_step_only_as_far_as_it_was_asked() -> None:
    steps = [*[step_of(2, 2)] * 4, *[step_of(3, 4)] * 2, *[step_of(2, 4)] * 2]
    shares = survival(steps, [2] * 4 + [4] * 4)
    assert shares.kept[:4] == (1.0, 1.0, 0.5, 0.0)
    record = recorded(steps, Speculation.of("draft", 2), {4: Speculation.of("draft", 4)})
    found = project(reply_with(record))
    assert found is not None
    assert found.longest == 4
    assert found.outlooks[3].tokens_per_step == pytest.approx(3.5)


def test_a_plain_reply_projects_nothing() -> None:
    assert project(finished((0,), "plain")) is None


def test_the_strategy_in_use_is_projected_else_the_one_that_drafted_most() -> None:
    steps = [step_of(1, 2), step_of(2, 2), step_of(1, 3, strategy="lookup"), step_of(0, 0, strategy="plain")]
    first, lookup, plain = Speculation.of("draft", 2), Speculation.of("lookup", 3), Speculation.of("plain")
    switched = project(reply_with(recorded(steps[:3], first, {2: lookup})))
    ended = project(reply_with(recorded(steps, first, {2: lookup, 3: plain})))
    assert switched is not None
    assert ended is not None
    assert (switched.strategy, switched.steps, ended.strategy, ended.steps) == ("lookup", 1, "draft", 2)


def recorded(steps: Sequence[Step], first: Speculation, changes: dict[int, Speculation]) -> Record:
    record, tokens = Record(first), 0
    for number, step in enumerate(steps):
        if number in changes:
            record.change(Changed(1, changes[number], tokens), tokens)
        record.add(step, tokens)
        tokens += step.emitted
    return record


def reply_with(record: Record) -> object:
    reply = reply_of([], record.first)
    reply._record = record
    return reply


# Marks


def test_a_change_is_marked_with_the_speeds_before_and_after() -> None:
    slow, fast = [step_of(0, 1)] * 4, [step_of(1, 1)] * 4
    record = recorded([*slow, *fast[:3]], Speculation.of("draft", 1), {4: Speculation.of("lookup", 3)})
    assert record.marks[0].text == "draft x1 → lookup x3 at token 4 · 74 tok/s before"
    record.add(fast[0], 10)
    assert record.marks[0].text == "draft x1 → lookup x3 at token 4 · 74 → 148 tok/s"
    few = recorded([*slow[:3], *fast], Speculation.of("draft", 1), {3: Speculation.of("plain")})
    assert few.marks[0].text == "draft x1 → plain at token 3"
    assert (record.stretch.steps, record.tally.steps) == (4, 8)


def test_a_run_of_changes_is_one_mark() -> None:
    four = [step_of(1, 1)] * 4
    lengths = {4 + at: Speculation.of("draft", length) for at, length in enumerate((11, 10, 8))}
    record = recorded([*four, *four], Speculation.of("draft", 12), lengths)
    (mark,) = record.marks
    assert (mark.text, mark.offset, mark.step, mark.tokens) == ("draft x12 → x8 at token 8 · 148 tok/s before", 8, 4, 8)
    record.add(four[0], 16)
    record.add(four[0], 18)
    assert record.marks[0].text == "draft x12 → x8 at token 8 · 148 → 148 tok/s"
    settings = {4: Speculation.of("lookup", 3), 5: Speculation.of("swift", 2), 6: Speculation.of("plain")}
    (mark,) = recorded([*four, *four], Speculation.of("draft", 1), settings).marks
    assert mark.text.startswith("draft x1 → plain at token 8")
    there_and_back = {4: Speculation.of("draft", 2), 5: Speculation.of("draft", 1)}
    assert recorded([*four, *four], Speculation.of("draft", 1), there_and_back).marks == []


def test_changes_that_are_apart_are_marked_each() -> None:
    slow = [replace(step_of(1, 1), verify_ms=600.0)] * 4
    lengths = {4: Speculation.of("draft", 11), 8: Speculation.of("draft", 10)}
    marks = recorded([*slow, *slow, *slow], Speculation.of("draft", 12), lengths).marks
    assert [mark.text.partition(" at")[0] for mark in marks] == ["draft x12 → x11", "draft x11 → x10"]


# Ledger


def test_the_ledger_compares_with_plain() -> None:
    ledger = Ledger()
    step = step_of(4, 5)
    took = step.draft_ms + step.verify_ms + step.other_ms
    ledger.add(reply_of([step] * 10, Speculation.of("draft", 5), plain=100.0))
    account = ledger.accounts["demo", "draft"]
    assert (account.replies, account.tokens, account.milliseconds) == (1, 50, pytest.approx(10 * took))
    assert account.saved_ms == pytest.approx(500 - 10 * took)
    assert account.times == pytest.approx(500 / (10 * took))
    assert ledger.checks["demo"].rows == (6,)


def test_a_projection_never_contradicts_its_own_reply() -> None:
    """The length in use is as fast as it was, though the first draft read a prompt; a mix may beat every length."""
    made = [replace(step_of(3, 5), draft_ms=60.0), *[step_of(kept, 5) for kept in (3, 5, 0, 2)] * 8]
    found = project(reply_of(made, Speculation.of("draft", 5)))
    assert found is not None
    assert found.outlooks[5].tokens_per_second == pytest.approx(found.measured)
    assert not found.beaten
    copied = [times_faster(step_of(8, 8, strategy="lookup"), 10)] * 12
    mixed = project(reply_of([*made, *copied], Speculation.of("auto")))
    assert mixed is not None
    assert (mixed.strategy, mixed.beaten) == ("draft", True)
    assert f"ran at {figures.per_second(mixed.measured)}" in source_words(mixed)


def test_no_length_is_projected_to_be_faster_than_its_steps_without_drafts() -> None:
    """Checks of few rows may have been measured while the machine was less busy than it was for plain decoding."""
    quick = [step_of(1, 1, check_ms=(1.0, 0.0))] * 12
    slow = [step_of(kept, 5, check_ms=(30.0, 0.0)) for kept in (5, 4, 5, 5)] * 6
    found = project(reply_of([*quick, *slow], Speculation.of("draft", 5), plain=80.0))
    assert found is not None
    assert all(one.times is not None and one.times <= one.tokens_per_step + 1e-9 for one in found.outlooks)
    assert any(one.times == pytest.approx(one.tokens_per_step) for one in found.outlooks[1:])


def test_what_cannot_be_compared_is_counted_apart() -> None:
    ledger = Ledger()
    ledger.add(finished((3,), plain=0.0))
    assert (ledger.total.replies, ledger.total.tokens, ledger.total.times) == (1, 201, None)
    ledger.add(finished((0,), "draft", plain=100.0))
    total = ledger.total
    assert total.saved_ms < 0
    assert total.times is not None
    assert total.times < 1
    assert total.milliseconds > total.compared_ms


def test_the_total_compares_what_the_rows_above_it_compare() -> None:
    ledger = Ledger()
    ledger.add(reply_of([step_of(5, 5)] * 12, Speculation.of("draft", 5)))
    alone = ledger.total
    ledger.add(reply_of([step_of(9, 9, strategy="lookup")] * 3, Speculation.of("lookup", 9)))
    assert [row.times is None for row in ledger.by_strategy().values()] == [False, True]
    assert (ledger.total.times, ledger.total.saved_ms) == (alone.times, alone.saved_ms)
    assert ledger.total.tokens == alone.tokens + 30


def test_a_reply_with_two_strategies_counts_once_in_all() -> None:
    steps = [step_of(1, 2), step_of(1, 3, strategy="lookup")]
    ledger = Ledger()
    ledger.add(reply_of(steps, Speculation.of("draft", 2), name="one"))
    ledger.add(reply_of(steps[:1], Speculation.of("draft", 2), name="two"))
    assert ledger.total.replies == 2
    assert {name: account.replies for name, account in ledger.by_strategy().items()} == {"draft": 2, "lookup": 1}
    assert ("two", "lookup") not in ledger.accounts


@pytest.mark.parametrize("strategy", ["auto", "cascade"])
def test_the_steps_of_auto_are_its_own_in_the_ledger(strategy: str) -> None:
    """A family that it gives only what suits that is no example of the family."""
    ledger = Ledger()
    ledger.add(reply_of([step_of(4, 5), step_of(0, 0, strategy="plain")], Speculation.of(strategy)))
    assert list(ledger.by_strategy()) == [strategy]
    assert ledger.by_strategy()[strategy].replies == 1


def test_what_if_takes_the_family_that_drafted_most_for_a_cascade() -> None:
    """Also where the draft model went on after a copy."""
    steps = [step_of(3, 4)] * 6 + [step_of(1, 2, strategy="cascade")] * 2
    found = project(reply_of(steps, Speculation.of("cascade")))
    assert found is not None
    assert (found.strategy, found.steps) == ("draft", 6)


def test_what_if_takes_the_family_that_auto_took_most() -> None:
    """Its limit is not known: the longest draft counts as asked for."""
    steps = [step_of(3, 4)] * 6 + [step_of(1, 2)] * 2 + [step_of(7, 8, strategy="lookup")] * 3
    found = project(reply_of(steps, Speculation.of("auto")))
    assert found is not None
    assert (found.strategy, found.steps, found.longest) == ("draft", 8, 4)


@pytest.mark.parametrize(("length", "label"), [(None, "auto"), (15, "auto"), (8, "auto x8")])
def test_auto_has_a_length_only_where_it_is_limited(length: int | None, label: str) -> None:
    assert speculation_label(Speculation.of("auto", length)) == label


def test_empty_replies_are_left_out() -> None:
    ledger = Ledger()
    ledger.add(reply_of([], Speculation.of("draft", 2)))
    assert (ledger.replies, ledger.total.times) == (0, None)


# Lookup's potential


def test_a_copied_text_is_found_and_a_new_one_is_not() -> None:
    text = " ".join(f"word{n}" for n in range(40))
    copied = potential(f"Say this again: {text}", text, 8)
    assert copied.words == 40
    assert copied.per_step == 5
    assert potential("Say something.", text, 8).drafts == (0,) * 40


def test_a_repetition_is_found_in_the_reply_itself() -> None:
    assert potential("", "a b c d e f " * 10, 4).per_step > 3
    assert potential("", "", 4).per_step == 1


# Replay


def test_a_timeline_knows_when_steps_were_done() -> None:
    record = Record(Speculation.of("draft", 5))
    line = Timeline(record)
    line.update()
    assert (line.total, line.steps, line.steps_at(5)) == (0, 0, 0)
    for accepted in (1, 2):
        record.add(step_of(accepted, 2), 0)
    line.update()
    assert line.total == pytest.approx(33)
    assert [line.steps_at(ms) for ms in (0, 16.4, 16.5, 32, 33, 99)] == [0, 0, 1, 1, 2, 2]
    assert [line.tokens_after(n) for n in range(3)] == [0, 2, 5]


def test_what_took_no_time_is_shown_over_eight_seconds_and_longer_replies_at_their_own_pace() -> None:
    short, steps = Playback(finished((3, 0, 5, 1))), [replace(step_of(1, 2), verify_ms=4000.0)] * 3
    long = Playback(reply_of(steps, Speculation.of("draft", 2)))
    short.toggle()
    short.advance(7.9)
    assert not short.ended
    short.advance(0.2)
    assert short.ended
    assert short.pace == f"{figures.times(8000 / short.moment.total)} slower"
    assert (long.speed, long.pace) == (1, "as fast as it was")
    long.faster(1)
    assert long.pace == "2.0x faster"


def test_a_reply_is_played_faster_and_again() -> None:
    playback = Playback(finished((3, 0, 5, 1)))
    playback.toggle()
    playback.advance(4)
    half = playback.moment
    assert 0 < half.steps < half.of
    assert playback.playing
    playback.faster(1)
    playback.advance(2.01)
    assert (playback.ended, playback.playing) == (True, False)
    assert playback.shown.text == finished((3, 0, 5, 1)).text
    playback.toggle()
    assert (playback.playing, playback.moment.steps) == (True, 0)


def test_a_paused_reply_stays_where_it_is() -> None:
    playback = Playback(finished((3, 0, 5, 1)))
    playback.toggle()
    playback.move(1)
    playback.advance(99)
    assert (playback.playing, playback.moment.steps) == (False, 1)


def test_steps_can_be_walked_both_ways() -> None:
    reply = finished((3, 0, 5, 1))
    playback = Playback(reply)
    playback.move(-1)
    assert (playback.moment.steps, playback.moment.step, playback.shown.text) == (0, None, "")
    playback.move(2)
    assert playback.shown.text == reply.text[: reply.offsets[2]]
    assert playback.moment.step is reply.steps[1]
    playback.move(-1)
    assert playback.shown.text == reply.text[: reply.offsets[1]]
    playback.move(10_000)
    assert playback.shown.text == reply.text
    for _ in range(20):
        playback.faster(-1)
    assert playback.speed == PACES[0] * playback.moment.total / 8000


def test_what_a_reply_was_made_to_begin_with_is_there_all_the_time() -> None:
    reply = Reply(1, "demo", Sampling(seed=42), Speculation.of("draft"))
    reply.started(Started(1, 10, 0, 42, Speculation.of("draft"), "Dear sir,"))
    for step in steps(" I write to you.", (1,)):
        reply.step(step)
    reply.finished(Finished(1, "stop", reply.text, (), Stats()))
    playback = Playback(reply)
    assert playback.shown.text == "Dear sir,"
    playback.move(99)
    assert (playback.shown.text, playback.shown.offsets) == ("Dear sir, I write to you.", reply.offsets)
    playback.move(-99)
    assert playback.shown.text == "Dear sir,"


@given(st.lists(st.integers(-5, 9), max_size=12))
def test_wherever_one_goes_the_reply_is_as_it_was_then(moves: list[int]) -> None:
    steps = [step_of(1, 2)] * 3 + [step_of(0, 3, strategy="lookup")] * 4
    reply = reply_with(recorded(steps, Speculation.of("draft", 2), {3: Speculation.of("lookup", 3)}))
    playback = Playback(reply)
    for by in moves:
        playback.move(by)
        at = playback.moment.steps
        assert playback.shown.steps == steps[:at]
        assert len(playback.shown.marks) == (at > 3)


def test_less_than_is_shown_has_no_sign() -> None:
    ledger = Ledger()
    step = step_of(4, 5)
    took = step.draft_ms + step.verify_ms + step.other_ms
    ledger.add(reply_of([step] * 12, Speculation.of("draft", 5), plain=5000 / (took - 0.1)))
    assert -5 < ledger.total.saved_ms < 0
    rows = "\n".join(row.plain for row in ledger_rows(ledger, 70))
    assert "0.00 s" in rows
    assert "-0.00 s" not in rows


def test_the_ledger_explains_only_the_columns_it_shows() -> None:
    ledger = Ledger()
    ledger.add(reply_of([step_of(4, 5)], Speculation.of("draft", 5)))
    for width, shown in ((70, True), (50, False)):
        rows = " ".join(row.plain for row in ledger_rows(ledger, width))
        assert ("plain:" in rows) == (" plain " in rows.split("took:")[0]) == shown


def test_a_race_between_servers_is_compared_in_the_ledger() -> None:
    """By the plain server's milliseconds a token, with their spread."""
    ledger = Ledger()
    plain = [replace(step_of(0, 0), emitted=1, verify_ms=ms, draft_ms=0.0, other_ms=0.0) for ms in (9.0, 11.0) * 20]
    drafted = [replace(step_of(3, 4), emitted=4, verify_ms=20.0, draft_ms=0.0, other_ms=0.0) for _ in range(20)]
    ledger.raced("Box", plain, drafted)
    account = ledger.accounts["Box", "server"]
    assert (account.replies, account.tokens, account.milliseconds) == (1, 80, 400.0)
    assert account.times == pytest.approx(2.0)
    assert account.saved_ms == pytest.approx(400.0)
    speedup = account.compared.speedup
    assert speedup is not None
    assert speedup.low < 2.0 < speedup.high
    ledger.raced("Box", plain[:2], drafted)
    assert account.replies == 1  # two steps tell no speed
