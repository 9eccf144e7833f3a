"""Figures from replies: paired ratios, spreads, counts."""

import sys
from dataclasses import replace

import pytest

from specchat.bench.contender import Run
from specchat.bench.summary import Spread, by_category, summarise
from specchat.bench.table import aligned, auto_table, categories_table, lines_table, places_table
from tests.bench.samples import STATS, run, sample


def test_speed_leaves_the_first_delivery_out() -> None:
    assert Run((1, 2, 3, 4, 5), seconds=3.0, first_seconds=1.0, first_tokens=3).speed == pytest.approx(1.0)
    assert Run((1, 2, 3), seconds=1.0, first_seconds=1.0, first_tokens=3).speed is None


def test_speed_of_ours_is_that_of_all_steps() -> None:
    """50 ms for five tokens, whatever was delivered when; a reply that came at once has a speed, too."""
    ours = Run((1, 2, 3, 4, 5), seconds=3.0, first_seconds=3.0, first_tokens=5, stats=STATS)
    assert ours.speed == pytest.approx(100.0)
    assert ours.later_speed is None


def test_the_whole_reply_has_the_prompt_in_it() -> None:
    """A reply that comes at once has no speed after its first delivery, and counts as a whole all the same."""
    at_once = Run((1, 2, 3, 4), seconds=1.0, first_seconds=1.0, first_tokens=4)
    plain = Run((1, 2, 3, 4), seconds=4.0, first_seconds=1.0, first_tokens=1)
    assert (plain.speed, plain.whole_speed, at_once.whole_speed) == (1.0, 1.0, 4.0)
    samples = [replace(sample(name, 1.0), run=run) for name, run in (("plain", plain), ("draft x5", at_once))]
    _, draft = summarise(samples, {})
    assert draft.speedup_vs_plain is None
    assert draft.whole_speedup_vs_plain == Spread(4.0, 4.0, 4.0, 1)
    (_, theirs) = summarise([replace(s, contender=s.contender.replace("draft x5", "theirs")) for s in samples],
                            {"theirs": "plain"})  # fmt: skip
    assert theirs.whole_ours_over == Spread(0.25, 0.25, 0.25, 1)
    lines = summarise([replace(samples[0], contender="draft x5"), replace(samples[1], contender="auto x8")], {})
    assert auto_table({}, lines) == ""
    assert [row.split() for row in auto_table({}, lines, whole=True).splitlines()[1:]] == [["all", "4.00"]]


def test_spreads() -> None:
    assert Spread.of([]) is None
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0, 1)
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(3.0, 2.0, 4.0, 5)


def test_ratios_are_within_a_prompt() -> None:
    """The medians of the speeds would say 100 / 100; each prompt says 2, 2 and 5."""
    samples = [
        *(sample("plain", speed, name) for name, speed in (("a", 10.0), ("b", 100.0), ("c", 200.0))),
        *(sample("draft x5", speed, name) for name, speed in (("a", 50.0), ("b", 200.0), ("c", 400.0))),
    ]
    plain, draft = summarise(samples, {})
    assert draft.speedup_vs_plain is not None
    assert (draft.speedup_vs_plain.median, draft.speedup_vs_plain.high) == (pytest.approx(2.0), pytest.approx(3.5))
    assert plain.speedup_vs_plain is None


def test_repeats_count_by_their_median() -> None:
    samples = [sample("plain", speed, repeat=i) for i, speed in enumerate((10.0, 90.0, 20.0))]
    (plain,) = summarise(samples, {})
    assert plain.tokens_per_second == Spread(pytest.approx(20.0), pytest.approx(20.0), pytest.approx(20.0), 1)


def test_the_least_has_its_own_interval_after_rounds_enough() -> None:
    for rounds, told in ((4, "0.50"), (5, "0.50 (0.50-0.50)")):
        samples = [
            sample(contender, speed, name, repeat)
            for repeat in range(rounds)
            for contender, name, speed in (
                ("plain", "a", 10.0), ("plain", "b", 10.0), ("auto x8", "a", 5.0), ("auto x8", "b", 20.0),
            )
        ]  # fmt: skip
        _, auto = lines = summarise(samples, {})
        assert {name: round(one.times, 3) for name, one in auto.vs_plain.items()} == {"a": 0.5, "b": 2.0}
        assert f" {told} " in lines_table(lines, {})


def test_other_programs_come_last_and_are_held_against_ours() -> None:
    samples = [sample("theirs", 20.0), sample("draft x5", 60.0), sample("plain", 30.0)]
    lines = summarise(samples, {"theirs": "draft x5"})
    assert [line.contender for line in lines] == ["plain", "draft x5", "theirs"]
    assert lines[2].ours_over is not None
    assert lines[2].ours_over.median == pytest.approx(3.0)
    assert lines[1].ours_over is None
    assert "draft x5 3.00" in lines_table(lines, {"theirs": "draft x5"})


def test_a_text_counts_as_the_same_only_in_every_repeat() -> None:
    samples = [
        *(sample("plain", 10.0, name, r) for name in "ab" for r in (0, 1)),
        *(sample("draft x5", 10.0, "a", r) for r in (0, 1)),
        sample("draft x5", 10.0, "b", 0),
        sample("draft x5", 10.0, "b", 1, tokens=(5, 6, 8)),
    ]
    lines = summarise(samples, {})
    assert [(line.identical, line.prompts) for line in lines] == [(2, 2), (1, 2)]


def test_engine_figures_are_pooled_over_steps() -> None:
    longer = replace(STATS, num_draft_tokens=44, num_tested_draft_tokens=36)
    samples = [
        sample("plain", 10.0),
        replace(sample("draft x5", 10.0), run=replace(run(10.0, stats=STATS), tested=(2, 2), accepted=(2, 1))),
        replace(sample("draft x5", 10.0, "b"), run=replace(run(10.0, stats=longer), tested=(2,), accepted=(1,))),
    ]
    _, draft = summarise(samples, {})
    assert draft.mean_acceptance_length == pytest.approx(1 + 6 / 8), "over all verify steps"
    assert draft.draft_acceptance_rate == pytest.approx(6 / 50)
    assert draft.tested_acceptance_rate == pytest.approx(6 / 40)
    assert draft.by_place == (pytest.approx(3 / 4), pytest.approx(1 / 2))
    assert draft.verify_ms is not None
    assert draft.verify_ms.median == pytest.approx(10.0)
    assert "75%" in places_table([draft])


def test_categories_stand_apart() -> None:
    samples = [
        sample(name, speed * factor, category, category=category)
        for category, factor in (("chat", 1.0), ("copy", 3.0))
        for name, speed in (("plain", 10.0), ("lookup x8", 10.0 * factor))
    ]
    table = categories_table(by_category(samples, {})).splitlines()
    assert [line.split() for line in table[1:]] == [["chat", "1.00"], ["copy", "3.00"]]


def test_what_is_wider_than_the_terminal_goes_on_below(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("x plain", "auto", "draft x15", "lookup x8"), ("chat", "2.00", "2.10", "0.99"), ("copy", "3.00")]
    whole = aligned(rows).splitlines()
    assert whole[0] == "x plain  auto  draft x15  lookup x8"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns, parts in (
        ("35", [whole]),
        ("34", [[line[:24] for line in whole], ["x plain  lookup x8"]]),
        ("9", None),
    ):
        monkeypatch.setenv("COLUMNS", columns)
        shown = [part.splitlines() for part in aligned(rows).split("\n\n")]
        if parts is None:
            assert [part[0].split()[2] for part in shown] == ["auto", "draft", "lookup"]
        else:
            assert shown[0] == [line.rstrip() for line in parts[0]]
            assert [part[0] for part in shown] == [part[0].rstrip() for part in parts]


def test_auto_is_held_against_each_other_way_of_drafting_within_a_prompt() -> None:
    """Where it is faster on one prompt and slower on two, it is slower, whatever the medians of both."""
    speeds = {"a": (10.0, 20.0), "b": (9.0, 10.0), "c": (44.0, 40.0)}
    samples = [
        sample(name, speed, prompt, category=category)
        for category, factor in (("chat", 1.0), ("copy", 3.0))
        for prompt, both in speeds.items()
        for name, speed in zip(("auto x8", "draft x15"), (both[0] * factor, both[1]), strict=True)
    ]
    samples += [replace(s, contender="plain") for s in samples if s.contender == "draft x15"]
    samples += [replace(s, contender="auto x4") for s in samples if s.contender == "auto x8"]
    samples += [sample("theirs", 5.0, "a")]
    lines = summarise(samples, {"theirs": "draft x15"})
    assert [line.contender for line in lines if line.auto_over] == ["plain", "draft x15", "auto x4"]
    table = auto_table(by_category(samples, {}), lines).splitlines()
    assert table[0].split() == ["auto", "over", "draft", "x15"]
    assert [line.split() for line in table[1:3]] == [["chat", "0.90"], ["copy", "2.70"]]
    assert auto_table({}, lines[:1]) == ""


def test_a_strategy_missing_on_some_prompts_is_compared_where_both_are() -> None:
    samples = [sample("plain", 10.0), sample("plain", 10.0, "b"), sample("theirs", 5.0, "b")]
    _, theirs = summarise(samples, {"theirs": "plain"})
    assert theirs.prompts == 1
    assert theirs.ours_over is not None
    assert theirs.ours_over.n == 1
