"""Saved prompts in the app: kept under a name, brought by it, and filled in."""

from pathlib import Path

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until
from test_chat import status

from specchat.config.saved_prompts import SavedPrompts
from specchat.tui.launch import Launch
from tests.fake import FakeEngine
from tests.parts import changed


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return changed(LAUNCH, config=changed(LAUNCH.config, prompts=SavedPrompts(tmp_path)))


async def test_a_prompt_is_kept_brought_and_filled_in(launch: Launch, tmp_path: Path) -> None:
    app = make_app(FakeEngine(), launch)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.fill("/save-prompt review Look at {file} for {what}.")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "tab goes through its blanks" in status(app))
        assert (tmp_path / "review.md").read_text() == "Look at {file} for {what}.\n"
        await pilot.press(*"/revi")
        await wait_until(pilot, lambda: "Put your saved prompt into the box" in screen_text(app))
        await pilot.press("tab")
        assert app.chat.prompt.text == "/review "
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.chat.prompt.selected_text == "{file}")
        await pilot.press(*"app.py")
        await pilot.press("tab")
        assert app.chat.prompt.selected_text == "{what}"
        await pilot.press(*"bugs")
        assert app.chat.prompt.text == "Look at app.py for bugs."
        await pilot.press("tab")  # no blank is left
        assert (app.chat.prompt.text, app.chat.prompt.selected_text) == ("Look at app.py for bugs.", "")


async def test_an_argument_fills_the_first_blank_and_the_last_prompt_can_be_kept(launch: Launch) -> None:
    app = make_app(FakeEngine(), launch)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count")
        app.chat.prompt.fill("/save-prompt recount")
        await pilot.press("enter")
        await wait_until(pilot, lambda: "/recount brings this prompt" in status(app))
        app.chat.prompt.fill("/recount to nine")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.chat.prompt.text == "count to nine")


@pytest.mark.parametrize(("argument", "words"), [("help x", "is a command"), ("B x", "letters from a to z")])
async def test_a_name_that_cannot_be_had_is_told_and_nothing_is_lost(argument: str, words: str, launch: Launch) -> None:
    app = make_app(FakeEngine(), launch)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.fill(f"/save-prompt {argument}")
        await pilot.press("enter")
        await wait_until(pilot, lambda: words in status(app))
        assert app.chat.prompt.text == f"/save-prompt {argument}"
