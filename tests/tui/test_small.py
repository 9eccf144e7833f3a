"""Keys, fields, history, pastes, figures and gauges."""

import math
import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from conftest import PROBLEMS, ROOT, THEMES
from hypothesis import given
from hypothesis import strategies as st

from specchat import figures
from specchat.chat.sources import LEGEND, REJECTED, source_of
from specchat.engine.protocol.comparison import Comparison
from specchat.engine.protocol.events import Changed
from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import STRATEGIES
from specchat.insight.diagnosis import Advice, Diagnosis
from specchat.insight.footer import footer, whole_footer
from specchat.insight.gauges import gauges
from specchat.service.settings import ChatSettings
from specchat.tui.actions.table import ACTIONS, as_markdown
from specchat.tui.history import PromptHistory
from specchat.tui.pastes import Pastes
from specchat.tui.settings import FIELDS, InvalidValue, nudged
from specchat.tui.text.bars import columns
from specchat.tui.themes import SPEC_DEFAULTS, textual_theme
from specchat.tui.widgets.panel import WIDTH, one_row, panel_rows
from tests.fake import INFO
from tests.fake_steps import compared, steps
from tests.insight.replies import finished, reply_of, step_of
from tests.parts import changed


def test_the_key_page_is_current() -> None:
    assert (ROOT / "docs" / "keys.md").read_text() == as_markdown(), (
        "python -m specchat.tui.actions.table > docs/keys.md"
    )


def test_no_key_is_bound_twice() -> None:
    for where in ("prompt", "transcript"):
        keys = [key for action in ACTIONS for key in action.keys if action.where in ("anywhere", where)]
        assert len(keys) == len(set(keys))


def test_actions_are_told_apart() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    slashes = [action.slash for action in ACTIONS if action.slash]
    assert len(slashes) == len(set(slashes))


def test_every_source_has_a_look_and_a_colour() -> None:
    assert {source_of(name) for name in (*STRATEGIES, "target", "bonus")} | {REJECTED} == set(LEGEND)
    assert {source.style.lstrip(".") for source in LEGEND} == set(SPEC_DEFAULTS)


def test_every_source_is_told_apart_without_colour() -> None:
    sheet = (ROOT / "specchat" / "tui" / "screens" / "hidden.tcss").read_text()
    looks = dict(re.findall(r"\.(spec-[a-z]+) \{ color: [^;]+;(?: text-style: ([a-z ]+);)? \}", sheet))
    assert set(looks) == set(SPEC_DEFAULTS)
    assert len(set(looks.values())) == len(looks)


def test_the_shipped_themes_are_whole() -> None:
    assert PROBLEMS == []
    assert len([theme for theme in THEMES if theme.dark]) >= 3
    assert not all(theme.dark for theme in THEMES)
    for theme in THEMES:
        assert set(textual_theme(theme).variables) >= set(SPEC_DEFAULTS)


# Fields


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("temperature", "hot", "needs a number from 0 to 10"),
        ("temperature", "-1", "needs a number from 0 to 10"),
        ("temperature", "nan", "needs a number from 0 to 10"),
        ("temperature", "", "needs a number from 0 to 10"),
        ("top_k", "1.5", "needs a whole number from 0"),
        ("top_p", "0", "needs a number above 0, at most 1"),
        ("top_p", "1.1", "needs a number above 0, at most 1"),
        ("draft_length", "0", "needs a whole number from 1 to 15"),
        ("draft_length", "16", "needs a whole number from 1 to 15"),
        ("seed", "abc", "needs a whole number, or nothing for a new one each reply"),
        ("seed", "-1", "needs a whole number from 0 to 9223372036854775807"),
        ("max_tokens", "0", "needs a whole number from 1 to 10000000"),
        ("max_tokens", "9" * 400, "needs a whole number from 1 to 10000000"),
    ],
)
def test_fields_refuse(key: str, text: str, words: str) -> None:
    field = next(field for field in FIELDS if field.key == key)
    with pytest.raises(InvalidValue) as refused:
        field.store(ChatSettings(), text)
    assert str(refused.value) == words


@given(st.sampled_from(FIELDS), st.text("0123456789.-+e, |\\nxinfa", max_size=12))
def test_fields_refuse_or_store_what_they_show(field: object, text: str) -> None:
    chosen = next(one for one in FIELDS if one is field)
    try:
        stored = chosen.store(ChatSettings(strategy="draft"), text.strip())
    except InvalidValue:
        return
    assert chosen.store(stored, chosen.show(stored)).limits == stored.limits
    assert chosen.store(stored, chosen.show(stored)).seed == stored.seed


def test_numbers_can_be_nudged() -> None:
    by_key = {field.key: field for field in FIELDS}
    assert nudged(by_key["temperature"], "0.7", 1) == "0.8"
    assert nudged(by_key["seed"], str(2**60), 1) == str(2**60 + 1)
    assert nudged(by_key["max_tokens"], "", 1) == "50"
    assert nudged(by_key["top_k"], "x", 1) == "x"
    assert nudged(by_key["seed"], "1.5", 1) == "1.5"


@pytest.mark.parametrize(
    ("key", "text", "steps", "moved"),
    [
        ("temperature", "0", -1, "0"),
        ("temperature", "0.05", -1, "0"),
        ("temperature", "10", 1, "10"),
        ("top_k", "5", -1, "0"),
        ("top_p", "1", 1, "1"),
        ("top_p", "0.05", -1, "0.05"),
        ("draft_length", "15", 1, "15"),
        ("max_tokens", "30", -1, "1"),
        ("max_tokens", "", -1, ""),
        ("seed", "", -1, ""),
    ],
)
def test_numbers_end_where_their_range_does(key: str, text: str, steps: int, moved: str) -> None:
    field = next(field for field in FIELDS if field.key == key)
    assert nudged(field, text, steps) == moved


def test_the_seed_is_drawn_anew_unless_given() -> None:
    settings = ChatSettings()
    assert settings.sampling_with(None).seed != settings.sampling_with(None).seed
    assert replace(settings, seed=3).sampling_with(None).seed == 3
    assert replace(settings, seed=3).sampling_with(4).seed == 4


# History and pastes


def test_history_survives_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "prompts.jsonl"
    history = PromptHistory(path)
    history.add("one\ntwo")
    history.add("one\ntwo")
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    history.add("another")
    assert path.stat().st_mode & 0o077 == 0
    history.add("  ")
    path.write_bytes(path.read_bytes() + b'\xff\xfe broken\n{"a": 1}\n"three"\n')
    again = PromptHistory(path)
    assert [again.older(shown) for shown in ("x", "three", "another")] == ["three", "another", "one\ntwo"]
    assert [again.newer(shown) for shown in ("one\ntwo", "another", "three", "x")] == ["another", "three", "x", None]


def test_words_typed_over_an_earlier_prompt_come_back_in_its_place() -> None:
    history = PromptHistory()
    history.add("one")
    history.add("two")
    assert [history.older("draft"), history.older("two, but longer")] == ["two", "one"]
    assert [history.newer("one"), history.newer("two, but longer")] == ["two, but longer", "draft"]
    history.add("three")
    assert [history.older(""), history.older("three")] == ["three", "two"]


def test_an_emptied_box_begins_with_the_newest_prompt() -> None:
    history = PromptHistory()
    history.add("one")
    history.add("two")
    assert [history.older("draft"), history.older("two")] == ["two", "one"]
    assert [history.older(""), history.newer("two")] == ["two", "draft"]


def test_history_without_a_place_lasts_for_this_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PromptHistory(tmp_path / "file" / "prompts.jsonl")
    history.add("one")
    assert history.older("") == "one"


def test_history_files_do_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(f'"{n}"\n' for n in range(3000)))
    assert PromptHistory(path).older("") == "2999"
    assert len(path.read_text().splitlines()) == 500
    assert path.stat().st_mode & 0o077 == 0


def test_huge_prompts_are_not_kept(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "prompts.jsonl")
    history.add("x" * 1_000_000)
    assert history.older("") is None


def test_pastes_fold_and_unfold() -> None:
    pastes = Pastes()
    big, tall = "x" * 9000, "a\n" * 100
    prompt = f"see {pastes.fold(big)} and {pastes.fold('small')} and {pastes.fold(tall)}"
    assert prompt == "see [paste 1: 9,000 characters] and small and [paste 2: 200 characters, 100 lines]"
    assert pastes.unfold(prompt) == f"see {big} and small and {tall}"
    for column, found in ((3, None), (4, big), (20, big), (31, big), (36, None), (60, tall)):
        folded = pastes.at(prompt, column)
        assert (folded.text if folded else None) == found
    assert pastes.at("[paste 7: 1 characters]", 3) is None
    assert pastes.unfold("[paste 7: 1 characters]") == "[paste 7: 1 characters]"


# Figures and gauges


def test_figures() -> None:
    assert [figures.per_second(value) for value in (9.44, 142.4, 1142.4)] == ["9.4", "142", "1,142"]
    assert [figures.faster(value) for value in (2.4, 1.06, 1.04, 0.96, 0.8)] == [
        ("2.4x", "faster"),
        ("1.1x", "faster"),
        ("1.0x", "as fast"),
        ("1.0x", "as fast"),
        ("1.2x", "slower"),
    ]
    intervals = ((2.4, 2.1, 3.16), (0.8, 0.7, 0.9), (1.0, 0.9, 1.1), (2.4, 2.1, math.inf), (0.8, 0.5, 1.25))
    assert [figures.faster_between(*each) for each in intervals] == [
        "2.1-3.2x",
        "1.1-1.4x",
        "0.9-1.1x",
        "2.1x or more",
        "0.8-2.0x",
    ]
    assert [figures.times(1.94), figures.times(12.3)] == ["1.9x", "12x"]
    assert [figures.of(value, "token") for value in (0, 1, 1234)] == ["0 tokens", "1 token", "1,234 tokens"]
    times = {120: "0.12 s", 997: "1.0 s", 3_440: "3.4 s", 9_960: "10 s", -12_340: "12 s", 59_700: "1 min 00 s"}
    times |= {125_000: "2 min 05 s", 599_400: "9 min 59 s", 599_600: "10 min", 754_000: "13 min"}
    times |= {3_599_000: "1 h 00 min", 7_320_000: "2 h 02 min"}
    assert {ms: figures.duration(ms) for ms in times} == times
    assert [figures.interval(0.96, high) for high in (1.5, inf, None)] == ["0.96-1.50", "unsure", "unsure"]
    assert [figures.memory(61 << 20), figures.memory(6900 << 20)] == ["61 MiB", "6.7 GiB"]


@given(st.lists(st.floats(0, 20), max_size=80), st.integers(1, 30), st.integers(1, 5))
def test_columns_fill_their_box(values: list[float], width: int, height: int) -> None:
    rows = columns(values, 15, width, height)
    assert [len(row) for row in rows] == [width] * height
    assert all(char in " ▁▂▃▄▅▆▇█" for row in rows for char in row)


def test_gauges_equal_the_engines_figures() -> None:
    reply = finished((3, 0, 5, 1))
    shown, final = gauges(reply, INFO), reply.end.stats
    assert final is not None
    assert shown.acceptance.length == pytest.approx(final.mean_acceptance_length)
    assert shown.acceptance.rate == pytest.approx(final.draft_acceptance_rate)
    assert shown.acceptance.histogram == final.acceptance_histogram
    reply.end = replace(reply.end, stats=None)
    live = gauges(reply, INFO)
    assert live.speed.tokens_per_second == pytest.approx(final.tokens_per_second)
    assert live.speed.speedup == pytest.approx(final.speedup_vs_plain)


def test_a_rough_factor_is_of_the_reply_itself_and_of_none_before() -> None:
    reply = finished((3,))
    assert reply.end.stats is not None
    reply.end = replace(reply.end, stats=replace(reply.end.stats, speedup_vs_plain=None, speedup_interval=None))
    rough = Comparison.of([replace(step, plain_error=0.15) for step in reply.steps])
    reply.tally.compared = rough
    shown = gauges(reply, INFO)
    assert rough.rough is not None
    assert (rough.speedup, shown.speed.interval, shown.speed.lately) == (
        None,
        (rough.rough.low, rough.rough.high),
        False,
    )


def test_a_running_reply_is_shown_since_its_latest_change() -> None:
    reply = finished((5, 4))
    reply.end = replace(reply.end, stats=None)
    reply.changed(Changed(1, Speculation.of("lookup"), 200))
    assert gauges(reply, INFO).acceptance.length is None
    first, *others = compared(steps("word " * 90, (0, 0, 1), "lookup"), 100.0)
    reply.step(first)
    assert (gauges(reply, INFO).speed.speedup, gauges(reply, INFO).speed.measuring) == (None, True)
    for step in others:
        reply.step(step)
    shown = gauges(reply, INFO)
    assert shown.acceptance.length is not None
    assert 1 < shown.acceptance.length < 2
    assert shown.speed.speedup is not None
    assert not shown.speed.measuring
    assert len(shown.acceptance.histogram) == 2


def test_the_footer() -> None:
    reply = finished((3, 0, 5, 1))
    assert reply.end.stats is not None
    figures = {
        "tokens_per_second": 142,
        "speedup_vs_plain": 1.9,
        "completion_tokens": 214,
        "mean_acceptance_length": 3.4,
    }
    reply.end = replace(reply.end, stats=replace(reply.end.stats, **figures, ttft_ms=120))
    assert footer(reply) == "demo · draft · 142 tok/s · 1.9x"
    whole = "142 tok/s · 1.9x plain · 214 tokens · seed 42 · 3.4 a step · 0.12 s to first · demo · draft"
    assert whole_footer(reply) == whole
    reply.end = replace(reply.end, stats=replace(reply.end.stats, num_repeated_tokens=200))
    assert footer(reply) == "demo · draft · 142 tok/s · 1.9x · copied from an earlier reply"
    assert whole_footer(reply) == whole.replace(" plain", " plain · copied from an earlier reply")


@pytest.mark.parametrize(("waited_ms", "told"), [(0.0, ""), (0.3, ""), (6.25, "waited for other programs 33%")])
def test_the_panel_says_how_long_other_programs_had_the_processor(waited_ms: float, told: str) -> None:
    step = replace(step_of(3, 5), draft_ms=5.0, verify_ms=7.0, other_ms=0.5, waited_ms=waited_ms)
    rows = [row.plain for row in panel_rows(gauges(reply_of([step], Speculation.of("draft")), INFO), 60, "F4")]
    split = rows.index("draft 40%  verify 56%  other 4%")
    assert ([*rows[split + 1 :], ""])[0] == told


@pytest.mark.parametrize(
    ("saved_ms", "words"), [(-4.0, "saved so far"), (-40.0, "lost so far"), (400.0, "saved so far")]
)
def test_nothing_lost_is_not_called_lost(saved_ms: float, words: str) -> None:
    rows = panel_rows(gauges(finished((3,)), INFO, saved_ms=saved_ms), 60, "F4")
    assert any(row.plain.startswith(words) for row in rows)


@pytest.mark.parametrize(
    ("lately", "begins"), [(False, "2.0x faster (1.9-2.2x) · 142"), (True, "2.0x faster lately (1.9-2.2x) · 142")]
)
def test_one_row_says_where_the_factor_is_of_replies_before_too(lately: bool, begins: str) -> None:
    shown = gauges(finished((3,)), INFO)
    shown = changed(shown, speedup=2.0, interval=(1.9, 2.2), lately=lately, tokens_per_second=142.0)
    assert one_row(shown, 99, "F4").plain.startswith(begins)


@pytest.mark.parametrize("height", [1, 5, 12, 20, 30, 60])
def test_the_panel_fits(height: int) -> None:
    for reply in (None, finished((3, 0, 5, 1)), finished((15, 14, 0), plain=0), finished((0,), "plain")):
        advice = Advice(Speculation.of("lookup", 8, "ratio"), 1.3, "estimated")
        shown = gauges(reply, INFO, Diagnosis("slower than plain, measured: " + "so it is " * 9, False, advice), -3100)
        for speed in (shown.speed.tokens_per_second, 13443.0):
            rows = panel_rows(changed(shown, tokens_per_second=speed), height, "F4")
            assert len(rows) <= height
            assert all(row.cell_length <= WIDTH for row in rows)
        for width in (10, 40, 60, 99):
            assert one_row(shown, width, "F4").cell_length <= width
