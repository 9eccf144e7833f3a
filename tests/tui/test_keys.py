"""keys.toml moves keys, in the bindings and wherever they are shown."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, ask, loaded, make_app, wait_until
from textual.events import Key

from specchat.config.keymap import read_keymap
from specchat.engine.fake import FakeEngine
from specchat.tui.actions.keys import Keys
from specchat.tui.actions.table import BY_ID
from specchat.tui.screens.help import HelpScreen
from specchat.tui.screens.history import HistoryScreen
from specchat.tui.screens.settings import SettingsScreen
from specchat.tui.widgets.rows import Hints


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
    keys = Keys(keymap)
    (problem,) = keys.problems
    assert words in problem
    assert keys.for_textual() == {}


def test_keys_can_be_exchanged() -> None:
    keys = Keys({"help": "ctrl+t", "token-view": "f1"})
    assert keys.problems == []
    assert keys.first(BY_ID["help"]) == "ctrl+t"


def test_the_same_letter_may_mean_different_things_in_different_places() -> None:
    assert Keys({"rename-chat": "j"}).problems == []


async def test_moved_keys_work_and_are_shown() -> None:
    app = make_app(FakeEngine(), replace(LAUNCH, keymap={"settings": "alt+s", "help": ""}))
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


def test_the_documented_entries_are_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    (tmp_path / "keys.toml").write_text(page.partition("## Keys")[2].partition("```toml\n")[2].partition("```")[0])
    assert Keys(read_keymap(tmp_path / "keys.toml")).problems == []


def test_a_key_of_one_s_own_is_taken_from_an_action_that_has_another() -> None:
    keys = Keys({"regenerate": "ctrl+r", "copy-reply": "ctrl+y", "new-chat": "ctrl+n"})
    assert keys.problems == []
    assert keys.first(BY_ID["regenerate"]) == "ctrl+r"
    assert keys.of(BY_ID["search-prompts"]) == ("ctrl+s",)
    assert keys.for_textual()["search-prompts"] == "ctrl+s"
    assert "ctrl+n" not in keys.of(BY_ID["history"])


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


@pytest.mark.skipif(sys.platform == "win32", reason="the driver of POSIX terminals")
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
    from specchat.tui.terminal import KeyParser

    parser = KeyParser()
    keys = [event for text in (sent, "") for event in parser.feed(text)]
    assert [event.key for event in keys if isinstance(event, Key)] == [key]
