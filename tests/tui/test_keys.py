"""keys.toml moves keys, in the bindings and wherever they are shown."""

from dataclasses import replace

import pytest
from conftest import LAUNCH, loaded, make_app, wait_until

from specchat.engine.fake import FakeEngine
from specchat.tui.actions.keys import Keys
from specchat.tui.actions.table import BY_ID
from specchat.tui.screens.help import HelpScreen
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
