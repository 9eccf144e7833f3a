"""Tags of chats: given, changed, listed and looked for, by keys alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from conftest import ask, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot
from textual.widgets import Input

from specchat.tui.app import SpecchatApp
from specchat.tui.screens.ask import AskScreen
from tests.fake import FakeEngine


@asynccontextmanager
async def two_chats() -> AsyncIterator[tuple[SpecchatApp, Pilot[None]]]:
    """A chat on foxes, and an open one on lamps."""
    app = make_app(FakeEngine(("Yes.",)))
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Foxes at night")
        await pilot.press("alt+n")
        await ask(app, pilot, "Lamps at night")
        yield app, pilot


def tags(app: SpecchatApp) -> dict[str, tuple[str, ...]]:
    return {entry.title: entry.tags for entry in app.session.chat.saving.store.chats()}


def listed(app: SpecchatApp) -> list[str]:
    rows = app.chat.sidebar._rows
    return [row.content.plain.strip("● ").split()[0] for row in rows if row.key is not None]


async def run(app: SpecchatApp, pilot: Pilot[None], command: str) -> None:
    app.chat.prompt.insert(command)
    await pilot.press("escape", "enter")
    await pilot.pause()


async def test_the_open_chat_is_tagged_by_a_command() -> None:
    async with two_chats() as (app, pilot):
        await run(app, pilot, "/tag work/reports urgent")
        assert tags(app)["Lamps at night"] == ("work/reports", "urgent")
        assert "tags: #work/reports #urgent" in screen_text(app)
        await run(app, pilot, "/tag -urgent")
        assert tags(app)["Lamps at night"] == ("work/reports",)
        await pilot.press("ctrl+b")
        await wait_until(pilot, lambda: "#work/reports · Yes." in screen_text(app))


async def test_tags_of_a_chat_in_the_list_are_edited() -> None:
    async with two_chats() as (app, pilot):
        await pilot.press("ctrl+b", "down", "t")
        await wait_until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press(*"night", "enter")
        await wait_until(pilot, lambda: tags(app)["Foxes at night"] == ("night",))
        await pilot.press("t")
        await wait_until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert app.screen.query_one(Input).value == "night"
        await pilot.press(*"work/x", "enter")
        await wait_until(pilot, lambda: tags(app)["Foxes at night"] == ("work/x",))
        assert tags(app)["Lamps at night"] == ()


async def test_the_list_shows_the_chats_with_a_tag() -> None:
    async with two_chats() as (app, pilot):
        await run(app, pilot, "/tag work/reports")
        await pilot.press("ctrl+b", "f")
        await wait_until(pilot, lambda: app.chat.sidebar.query_one(Input).value == "#work/reports")
        assert listed(app) == ["Lamps"]
        await pilot.press(*" night")
        await wait_until(pilot, lambda: listed(app) == ["Lamps"])
        await pilot.press("escape")
        await run(app, pilot, "/search #none night")
        await wait_until(pilot, lambda: "nothing found" in screen_text(app))
        await pilot.press("escape")
        await run(app, pilot, "/search #work")
        await wait_until(pilot, lambda: listed(app) == ["Lamps"])


async def test_tags_are_offered_where_one_is_typed() -> None:
    async with two_chats() as (app, pilot):
        await run(app, pilot, "/tag work/reports")
        await pilot.press(*"/tag wor")
        await wait_until(pilot, lambda: app.chat.completions.completion is not None)
        completion = app.chat.completions.completion
        assert completion is not None
        assert [choice.text for choice in completion.choices] == ["work/reports"]
