"""keys.toml moves keys, in the bindings and wherever they are shown."""

from pathlib import Path

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until
from test_chat import slow, until_shown
from textual.events import Key

from specchat.config.keymap import read_keymap
from specchat.engine.protocol.options import Speculation
from specchat.insight.diagnosis import Advice, Diagnosis
from specchat.insight.gauges import gauges
from specchat.tui.actions.table import ACTIONS
from specchat.tui.key_parser import KeyParser
from specchat.tui.keys import Keys
from specchat.tui.screens.ask import AskScreen
from specchat.tui.screens.help import HelpScreen
from specchat.tui.screens.history import HistoryScreen
from specchat.tui.screens.settings import SettingsScreen
from specchat.tui.widgets.panel import EnginePanel
from specchat.tui.widgets.rows import Hints
from specchat.tui.widgets.sidebar import Search
from tests.fake import INFO, FakeEngine
from tests.parts import changed


@pytest.mark.parametrize(
    ("keymap", "words"),
    [
        ({"help": "ctrl+t"}, "ctrl+t is the key of token-view already"),
        ({"help": "x"}, "x could not be typed any more"),
        ({"send": "ctrl+s"}, "the key of send cannot be moved"),
        ({"help": "enter"}, "enter is the key of send already"),
    ],
)
def test_entries_that_would_do_harm_are_left_out(keymap: dict[str, str], words: str) -> None:
    keys = Keys(ACTIONS, keymap)
    (problem,) = keys.problems
    assert words in problem
    assert all(keys.of(action.id) == action.keys for action in ACTIONS)


def test_keys_can_be_exchanged() -> None:
    keys = Keys(ACTIONS, {"help": "ctrl+t", "token-view": "f1"})
    assert keys.problems == []
    assert keys.first("help") == "ctrl+t"


def test_the_same_letter_may_mean_different_things_in_different_places() -> None:
    assert Keys(ACTIONS, {"rename-chat": "j"}).problems == []


async def test_moved_keys_work_and_are_shown() -> None:
    app = make_app(FakeEngine(), changed(LAUNCH, keymap={"settings": "alt+s", "help": ""}))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        assert "alt+s settings" in str(app.chat.query_one(Hints).render())
        await pilot.press("f1", "ctrl+o", "f2")
        await pilot.pause()
        assert app.screen is app.chat
        await pilot.press("alt+s")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await pilot.press("escape")
        await app.chat.do("help")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))


async def test_sentences_name_the_keys_of_keys_toml() -> None:
    moved = {
        "models": "f13", "token-view": "f14", "stop": "f15", "previous-version": "f16", "next-version": "f17",
        "find-here": "f18", "help": "f19", "undelete-chat": "", "advice": "f21",
    }  # fmt: skip
    engine, clock = slow("a b c d e f g h " * 9)
    app = make_app(engine, changed(LAUNCH, keymap=moved, fallback=LAUNCH.pair))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await until_shown(pilot, app, "F13 gets a real one")
        await ask(app, pilot, "hi", wait=False)
        clock.now = 20
        await until_shown(pilot, app, "writing; F15 stops")
        await pilot.press("alt+r")
        await until_shown(pilot, app, "a reply is running; your text is kept · F15 stops it")
        await pilot.press("escape")
        assert app.session.reply is not None
        await pilot.press("f15")
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.press("alt+r", "enter")
        await until_shown(pilot, app, "reply 2 of 2 · F16 F17 show others")
        clock.now = 9999
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.press("f14")
        await until_shown(pilot, app, "token view: F14 goes back")
        await pilot.press("f14", "ctrl+up", "n")
        await until_shown(pilot, app, "nothing is looked for: F18 finds")
        await app.chat.do("models", "xyz")
        await until_shown(pilot, app, "there is no pair xyz; F13 shows all")
        await pilot.press("f19")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("f19")
        await wait_until(pilot, lambda: app.screen is app.chat)
        diagnosis = Diagnosis("", False, Advice(Speculation.of("plain"), 1.3, "estimated"))
        app.chat.query_one(EnginePanel).show_gauges(gauges(None, INFO, diagnosis))
        await until_shown(pilot, app, "F21: ")
        await app.chat.do("delete-chat")
        await wait_until(pilot, lambda: app.chat.notice.text == "chat deleted; undo with /undelete")


async def test_a_letter_does_what_it_means_where_the_focus_is() -> None:
    keymap = {"regenerate-here": "v", "rename-chat": "v"}
    app = make_app(FakeEngine(), changed(LAUNCH, keymap=keymap))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await pilot.press("v")
        assert app.chat.prompt.text == "v"
        await pilot.press("ctrl+up", "v")
        await until_shown(pilot, app, "reply 2 of 2")
        await pilot.press("ctrl+b", "v")
        await wait_until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("escape", "/", "v")
        await wait_until(pilot, lambda: app.chat.sidebar.query_one(Search).value == "v")


async def test_the_help_puts_words_below_keys_that_are_longer_than_their_column() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f1")
        await until_shown(pilot, app, "Start a new line in the prompt.")
        rows = [row.strip("│ ") for row in screen_text(app).splitlines()]
        at = rows.index("ctrl+j or alt+enter or shift+enter")
        assert rows[at + 1] == "Start a new line in the prompt."


async def test_without_a_model_the_key_that_chooses_one_is_named() -> None:
    engine = FakeEngine()
    engine.fail_load("model", "it is broken")
    app = make_app(engine, changed(LAUNCH, keymap={"models": "f13"}))
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.session.loaded.error)
        app.chat.say("")
        await until_shown(pilot, app, "F13 shows other models")
        app.chat.prompt.insert("hi")
        await pilot.press("enter")
        await until_shown(pilot, app, "no model is loaded; your text is kept · F13 chooses one")


def test_the_documented_entries_are_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (tmp_path / "keys.toml").write_text(page.partition("## Keys")[2].partition("```toml\n")[2].partition("```")[0])
    keymap, mistakes = read_keymap(tmp_path / "keys.toml", [action.id for action in ACTIONS])
    assert (mistakes, Keys(ACTIONS, keymap).problems) == ([], [])


def test_a_key_of_one_s_own_is_taken_from_an_action_that_has_another() -> None:
    keys = Keys(ACTIONS, {"regenerate": "ctrl+r", "copy-reply": "ctrl+y", "new-chat": "ctrl+n"})
    assert keys.problems == []
    assert keys.first("regenerate") == "ctrl+r"
    assert keys.of("search-prompts") == ("ctrl+s",)
    assert "ctrl+n" not in keys.of("history")


async def test_keys_of_readline_keep_their_meaning_in_the_prompt() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        prompt, chat = app.chat.prompt, app.session.conversation
        prompt.insert("one two three")
        await pilot.press("ctrl+a", *["right"] * 4, "ctrl+k")
        assert prompt.text == "one "
        await pilot.press("ctrl+a", "ctrl+y", "ctrl+e", "x")
        assert prompt.text == "two threeone x"
        await pilot.press("ctrl+w", "ctrl+w", "ctrl+y")  # what was taken away in a row comes back as a whole
        assert prompt.text == "two threeone x"
        await pilot.press("ctrl+u", "ctrl+j", "ctrl+y", "ctrl+p", "a", "ctrl+n", "b")
        assert prompt.text == "a\ntbwo threeone x"
        await pilot.press("ctrl+c")
        await ask(app, pilot, "first words")
        await pilot.press("ctrl+p")
        assert prompt.text == "first words"
        await pilot.press("ctrl+n")
        assert prompt.text == ""
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: isinstance(app.screen, HistoryScreen))
        await pilot.press(*"first", "enter")
        await wait_until(pilot, lambda: app.screen is app.chat)
        assert prompt.text == "first words"
        assert app.session.conversation is chat
        assert len(chat.turns) == len(chat.turns[0].replies) == 1
        assert app.clipboard == ""


@pytest.mark.parametrize("key", ["ctrl+n", "ctrl+p"])
async def test_they_move_in_the_list_of_choices_too(key: str) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await pilot.press(*"/the")
        await wait_until(pilot, lambda: app.chat.completions.completion is not None)
        await pilot.press(key)
        assert app.chat.completions.marked is not None
        assert app.chat.prompt.text == "/the"


async def test_the_key_of_a_new_line_is_shown_once_something_is_typed() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        hints = app.chat.query_one(Hints)
        assert "new line" not in str(hints.render())
        await pilot.press("a")
        await wait_until(pilot, lambda: "ctrl+j new line" in str(hints.render()))
        await pilot.press("alt+enter", "b", "shift+enter", "ctrl+j", "c")
        assert app.chat.prompt.text == "a\nb\n\nc"


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\r", "enter"),
        ("\x1b\r", "alt+enter"),
        ("\x1b[13;3u", "alt+enter"),
        ("\x1b[13;2u", "shift+enter"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\n", "ctrl+j"),
        ("\x1br", "alt+r"),
    ],
)
def test_enter_with_a_modifier_is_told_from_enter(sent: str, key: str) -> None:
    parser = KeyParser()
    keys = [event for text in (sent, "") for event in parser.feed(text)]
    assert [event.key for event in keys if isinstance(event, Key)] == [key]


@pytest.mark.parametrize(
    ("reply", "built_in", "shown"),
    [
        ("Press **Ctrl+T**, **F3**, **Alt+N**, or **Ctrl+Y**.", True, "now: F13 (models), alt+c (copy reply)"),
        ("Press **Ctrl+T**, **F3**, **Alt+N**, or **Ctrl+Y**.", False, ""),
        ("**Ctrl+Y** takes away a part of the prompt or puts it back.", True, ""),
    ],
)
async def test_with_the_demo_s_older_keys_today_s_are_named(reply: str, built_in: bool, shown: str) -> None:
    fallback = LAUNCH.pair if built_in else None
    app = make_app(FakeEngine((reply,)), changed(LAUNCH, keymap={"models": "f13"}, fallback=fallback))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.chat.notice.text.endswith(shown)
        assert bool(app.chat.notice.text) == bool(shown)
