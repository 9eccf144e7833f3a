"""Keys are told where they do something, and sentences are read whole."""

import sqlite3

import pytest
from conftest import answered, screen_text, wait_until
from test_chat import until_shown

from specchat.chat.store import Store
from specchat.tui.widgets.rows import Hints

REPLY = "Once there was a fox who kept a lamp in her den. " * 3


async def test_the_token_view_tells_the_keys_of_its_cursor() -> None:
    async with answered(REPLY, (80, 24)) as (app, pilot):
        hints = app.chat.query_one(Hints)
        await pilot.press("ctrl+up")
        await wait_until(pilot, lambda: "i prompt" in str(hints.render()))
        assert "l next token" not in str(hints.render())
        await pilot.press("t")
        words = "l next token   h previous   w next step   b previous"
        await wait_until(pilot, lambda: str(hints.render()).startswith(words))


async def test_versions_tell_the_keys_that_show_the_others() -> None:
    async with answered(REPLY, (80, 24)) as (app, pilot):
        assert "show others" not in screen_text(app)
        await pilot.press("alt+r", "enter")
        await until_shown(pilot, app, "reply 2 of 2 · F7 F8 show others")
        await pilot.press("ctrl+up")
        hints = app.chat.query_one(Hints)
        await wait_until(pilot, lambda: str(hints.render()).startswith("< version before   > after"))


async def test_editing_tells_what_esc_does() -> None:
    async with answered(REPLY, (80, 24)) as (app, pilot):
        await pilot.press("f5")
        hints = app.chat.query_one(Hints)
        await wait_until(pilot, lambda: "esc give up editing" in str(hints.render()))
        assert "esc stop" not in str(hints.render())
        await pilot.press("escape")
        await wait_until(pilot, lambda: "esc" not in str(hints.render()))
        assert app.session.chat.editing is None


async def test_the_list_of_chats_tells_that_enter_opens() -> None:
    async with answered(REPLY, (80, 24)) as (app, pilot):
        await pilot.press("ctrl+b")
        hints = app.chat.query_one(Hints)
        await wait_until(pilot, lambda: str(hints.render()).startswith("enter open"))


@pytest.mark.parametrize("width", [40, 60, 80])
async def test_what_to_do_about_a_damaged_file_is_read_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with answered(REPLY, (width, 24)) as (app, pilot):

        def broken(*_: object) -> list[object]:
            raise sqlite3.DatabaseError("could not decode")

        monkeypatch.setattr(Store, "chats", broken)
        await pilot.press("ctrl+b")
        words = "The chats' file is damaged or no database of specchat. Move in memory away to start anew."
        await wait_until(pilot, lambda: words in " ".join(screen_text(app).split()))
        await pilot.press("escape")
        app.chat.say(words * 2, bad=True)
        await wait_until(pilot, lambda: " ".join(screen_text(app).split()).count("start anew.") == 2 - (width < 60))
