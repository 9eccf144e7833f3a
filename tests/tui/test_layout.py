"""Where things stand: the column of the chat, the prompt's box, the panel, wrapped code, hints and footers."""

import pytest
from conftest import LAUNCH, answered, ask, loaded, make_app, screen_text, wait_until
from hypothesis import given
from hypothesis import strategies as st
from test_chat import being_answered, slow
from textual.app import App, ComposeResult
from textual.content import EMPTY_CONTENT, Content, Span
from textual.widgets import OptionList

from specchat.config.paths import shipped
from specchat.config.presets import load_presets
from specchat.insight.footer import whole_footer
from specchat.tui.text.code_wrap import wrapped
from specchat.tui.widgets import rows
from specchat.tui.widgets.chat_view import WIDEST
from specchat.tui.widgets.panel import EngineLine, EnginePanel
from specchat.tui.widgets.plain import Plain
from specchat.tui.widgets.rows import Hints, hinted
from specchat.tui.widgets.sidebar import Sidebar
from tests.fake import FakeEngine
from tests.parts import changed

LONG = "word " * 60


@given(st.text("ab(. \t漢", max_size=60), st.integers(4, 30))
def test_wrapped_code_is_the_line_again(line: str, width: int) -> None:
    rows = wrapped(Content(line), width)
    assert "".join(text.plain + glue for _, text, glue in rows) == line.expandtabs(4)
    assert all(before.cell_length + text.cell_length <= width for before, text, _ in rows)


def test_a_tab_before_coloured_code_takes_its_cells() -> None:
    """Whatever was measured before: Textual keeps the width of its empty line once it was asked for."""
    assert EMPTY_CONTENT.cell_length == 0
    ((_, row, _),) = wrapped(Content("\t# Head", spans=[Span(1, 7, "red")]), 24)
    assert (row.plain, row.cell_length) == ("    # Head", 10)


def test_code_is_wrapped_between_words_with_a_mark() -> None:
    rows = wrapped(Content("    total = first_value + second"), 23)
    assert [before.plain + text.plain for before, text, _ in rows] == ["    total = first_value", "    ↪ + second"]
    assert rows[0][2] == " "


async def test_the_text_is_in_the_middle_of_a_wide_window_above_the_prompt() -> None:
    async with answered(LONG, (200, 40)) as (app, pilot):
        transcript = app.chat.transcript
        begin = next(row for row in screen_text(app).split("\n")[2:] if "word" in row).index("word")
        assert WIDEST - 5 <= max(line.content.cell_length for line, _ in transcript.chat_rows.rows) <= WIDEST
        prompt = app.chat.query_one("#entry").region
        assert prompt.x == begin
        assert abs((app.chat.query_one("#column").region.width - prompt.width) // 2 - begin) <= 1
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: any(row.startswith(" word") for row in screen_text(app).split("\n")))


async def test_there_is_no_panel_before_something_was_asked() -> None:
    app = make_app(FakeEngine((LONG,)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        panel, line = app.chat.query_one(EnginePanel), app.chat.query_one(EngineLine)
        assert not panel.display
        assert not line.display
        await ask(app, pilot, "hi")
        assert panel.display
        assert panel.outer_size.width == EnginePanel.OUTER
        await pilot.press("ctrl+b")
        await wait_until(pilot, lambda: "tok/s" in str(line.render()))
        assert not panel.display
        assert app.chat.sidebar.outer_size.width == Sidebar.outer(120)
        await pilot.press("escape", "alt+n")
        await pilot.pause()
        assert not panel.display


@pytest.mark.parametrize(
    ("width", "beside"), [(40, "demo · draft"), (60, "demo · draft x5 · temperature"), (120, "temperature 0.7")]
)
async def test_the_title_has_room_beside_what_is_set(width: int, beside: str) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(width, 20)) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: beside in screen_text(app).split("\n")[0])
        assert "specchat   new chat  " in screen_text(app).split("\n")[0]


@pytest.mark.parametrize(("height", "hinted"), [(14, False), (15, True), (24, True)])
async def test_low_windows_have_hints_where_there_is_room(height: int, hinted: bool) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(60, height)) as pilot:
        await loaded(app, pilot)
        await pilot.pause()
        assert ("ctrl+q quit" in screen_text(app)) == hinted


async def test_the_footer_says_all_under_the_cursor() -> None:
    async with answered(LONG, (120, 36)) as (app, pilot):
        reply = app.session.last_reply
        assert reply is not None
        assert whole_footer(reply) not in screen_text(app)
        await pilot.press("ctrl+up")
        await pilot.pause()
        assert whole_footer(reply)[:70] in screen_text(app)
        await pilot.press("g")
        await pilot.pause()
        assert whole_footer(reply)[:70] not in screen_text(app)


async def test_hints_are_of_what_can_be_done_now() -> None:
    engine, _ = slow(LONG)
    app = make_app(engine)
    async with app.run_test(size=(160, 36)) as pilot:
        await loaded(app, pilot)
        hints = app.chat.query_one(Hints)
        assert not {"stop", "tokens", "again", "new"} & set(str(hints.render()).split())
        await ask(app, pilot, "hi", wait=False)
        await wait_until(pilot, lambda: str(hints.render()).startswith("esc stop"))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: {"again", "new"} <= set(str(hints.render()).split()))
        assert "stop" not in str(hints.render())


async def test_hints_are_chosen_anew_only_when_what_they_depend_on_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[object] = []
    monkeypatch.setattr(rows, "hinted", lambda *about: chosen.append(about) or hinted(*about))
    async with being_answered(LONG, (120, 36), 20, "word word") as (app, pilot, clock):
        hints = app.chat.query_one(Hints)
        assert "esc stop" in str(hints.render())
        before = len(chosen)
        clock.now = 40
        await wait_until(pilot, lambda: screen_text(app).count("word") > 30)
        app.chat.draw_rows()
        assert len(chosen) == before
        clock.now = 9999
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: "alt+r again" in str(hints.render()))


async def test_a_long_message_is_read_whole_in_two_rows() -> None:
    async with answered(LONG, (60, 20)) as (app, pilot):
        app.chat.say("this sentence is longer than one row of the window and is read to its very end")
        await pilot.pause()
        assert "very end" in screen_text(app)
        app.chat.say("")
        await pilot.pause()
        assert app.chat.query_one("#status").size.height == 1
        app.chat.say("x" * (app.chat.query_one("#status").content_size.width - 1))
        await pilot.pause()
        assert app.chat.query_one("#status").size.height == 1


@pytest.mark.parametrize("action", ["settings", "commands"])
async def test_no_window_is_too_small_for_what_is_over_the_chat(action: str) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await app.chat.do(action)
        await wait_until(
            pilot, lambda: app.screen is not app.chat and any(one.option_count for one in app.screen.query(OptionList))
        )
        for size in ((24, 8), (6, 3), (1, 1), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert app.is_running


async def test_fields_and_choices_of_the_settings_begin_in_one_column() -> None:
    presets, _ = load_presets([shipped("presets.toml")])
    app = make_app(FakeEngine(), changed(LAUNCH, presets=presets))
    async with app.run_test(size=(80, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f2")
        await wait_until(pilot, lambda: "temperature" in str(app.screen.focused))
        rows = screen_text(app).split("\n")
        values = ("temperature", "0.7"), ("system prompt", "what the model"), ("preset", "exact"), ("context", "refuse")
        columns = {next(row for row in rows if name in row).index(value) for name, value in values}
        assert len(columns) == 1


class OneText(App[None]):
    def compose(self) -> ComposeResult:
        yield Plain("one row")


async def test_a_text_has_its_height_where_the_screen_is_to_be_laid_out_anyway() -> None:
    """As where a dialog is first opened, and its screen laid out before it has looked what is due."""
    app = OneText()
    async with app.run_test(size=(80, 24)) as pilot:
        text = app.query_one(Plain)
        text.refresh(layout=True)
        app.screen._clear_arrangement_cache()
        app.screen._refresh_layout()
        text.show("one\ntwo\nthree", layout=True)
        await pilot.pause()
        assert text.size.height == 3
