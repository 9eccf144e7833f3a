"""What looks as if it could be clicked can be."""

from dataclasses import replace

import pytest
from conftest import LAUNCH, answered, ask, flush, loaded, make_app, screen_text, wait_until
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.tui.composing.suggestions import SUGGESTIONS
from specchat.tui.screens.models import ModelsScreen
from specchat.tui.screens.palette import Palette
from specchat.tui.screens.settings import SettingsScreen
from tests.fake import FakeEngine

REPLY = "Once there was a fox who kept a lamp in her den. " * 3


async def click(app: App[None], pilot: Pilot[None], words: str) -> None:
    """Click on `words` where they stand on the screen."""
    await wait_until(pilot, lambda: words in screen_text(app))
    rows = screen_text(app).splitlines()
    row = next(number for number, line in enumerate(rows) if words in line)
    await pilot.click(offset=(rows[row].index(words) + 1, row))
    await pilot.pause()


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_suggestion(number: int) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await click(app, pilot, f"· {SUGGESTIONS[number - 1]}")
        assert app.chat.prompt.text == SUGGESTIONS[number - 1]
        assert app.chat.prompt.has_focus
        await click(app, pilot, SUGGESTIONS[0])
        assert app.chat.prompt.text == SUGGESTIONS[0]
        app.chat.prompt.insert(" And a cat.")
        await click(app, pilot, SUGGESTIONS[1])
        assert app.chat.prompt.text == f"{SUGGESTIONS[0]} And a cat."  # what was written stays


async def test_hints() -> None:
    async with answered(REPLY, (110, 30)) as (app, pilot):
        await click(app, pilot, "ctrl+o settings")
        assert isinstance(app.screen, SettingsScreen)
        await pilot.press("escape")
        await click(app, pilot, "ctrl+t tokens")
        assert app.chat.transcript.token_view
        await pilot.press("ctrl+up")
        await click(app, pilot, "i prompt")
        assert app.chat.prompt.has_focus
        await pilot.press("a")
        await click(app, pilot, "ctrl+j new line")
        assert app.chat.prompt.text == "a\n"


async def test_the_footer_of_a_reply_tells_all_its_figures() -> None:
    async with answered(REPLY, (130, 30)) as (app, pilot):
        assert "to first" not in screen_text(app)
        transcript = app.chat.transcript
        row = next(at for at, (line, _) in enumerate(transcript.chat_rows.rows) if "tok/s" in line.content.plain)
        x, y, *_ = transcript.content_region
        await pilot.click(offset=(x + 2, y + row))
        await wait_until(pilot, lambda: "to first" in screen_text(app))
        assert app.chat.transcript.has_focus


async def test_rows_of_the_lists() -> None:
    app = make_app(FakeEngine((REPLY,)), replace(LAUNCH))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "A lamp for the night?")
        first = app.session.conversation.key
        await app.chat.do("new-chat")
        await ask(app, pilot, "A door for the day?")
        flush(app.session.chat.saving.store)
        await pilot.press("ctrl+b")
        await click(app, pilot, "A lamp for the night")
        assert app.session.conversation.key == first
        await pilot.press("escape", *"/the")
        await click(app, pilot, "/theme")
        assert app.chat.prompt.text == "/theme "
        await pilot.press("ctrl+c", "alt+x")
        await wait_until(pilot, lambda: isinstance(app.screen, Palette) and "Apply advice" in screen_text(app))
        await click(app, pilot, "About")
        await wait_until(pilot, lambda: "row-invariant" in screen_text(app) or "device" in screen_text(app))
        await pilot.press("escape", "f3")
        await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await wait_until(pilot, lambda: [one.option_count for one in app.screen.query(OptionList)] == [2])
        await click(app, pilot, "Qwen3 8B + 0.6B")
        await wait_until(pilot, lambda: app.screen is app.chat)
        assert app.session.loaded.id == "big"
