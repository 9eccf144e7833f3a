"""ctrl+c, ctrl+q and ctrl+z: what they end, and what they leave."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from conftest import loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, status
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot

from specchat.engine.protocol.requests import Cancel
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.help import HelpScreen
from tests.fake import FakeEngine
from tests.service.made import Clock


@asynccontextmanager
async def started() -> AsyncIterator[tuple[SpecchatApp, Pilot[None], Clock]]:
    app, clock = make_app(FakeEngine(("Fine.",))), Clock()
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        app.interrupting.clock = clock
        yield app, pilot, clock


async def test_ctrl_c_stops_the_reply_and_keeps_the_draft() -> None:
    async with being_answered(LONG, (100, 30), 20, "word3") as (app, pilot, _):
        app.chat.prompt.insert("a draft")
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert any(isinstance(request, Cancel) for request in app.engine.requests)
        assert (app.chat.prompt.text, app.is_running) == ("a draft", True)
        assert "word3" in screen_text(app)


async def test_ctrl_c_clears_the_prompt_which_can_be_brought_back() -> None:
    async with started() as (app, pilot, _):
        app.chat.prompt.insert("a long thought")
        await pilot.press("ctrl+c")
        assert app.chat.prompt.text == ""
        assert "ctrl+_ brings it back" in status(app)
        await pilot.press("ctrl+underscore")
        assert app.chat.prompt.text == "a long thought"


async def test_ctrl_c_copies_what_is_selected_first() -> None:
    async with started() as (app, pilot, _):
        app.chat.prompt.insert("words")
        app.chat.prompt.select_all()
        await pilot.press("ctrl+c")
        assert (app.chat.prompt.text, app.clipboard) == ("words", "words")


async def test_ctrl_c_twice_leaves_and_slowly_only_says_how() -> None:
    async with started() as (app, pilot, clock):
        await pilot.press("ctrl+c")
        assert "ctrl+q leaves specchat" in status(app)
        clock.now = 1.5
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.is_running
        clock.now = 2.0
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: not app.is_running)


async def test_ctrl_c_closes_a_dialog() -> None:
    async with started() as (app, pilot, _):
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: app.screen is app.chat)


async def test_the_way_out_is_among_the_hints() -> None:
    async with started() as (app, pilot, _):
        for width in (60, 80):
            await pilot.resize_terminal(width, 24)
            await wait_until(pilot, lambda: "ctrl+q quit" in screen_text(app).splitlines()[-1])


@pytest.mark.parametrize("can", [True, False])
async def test_ctrl_z_suspends_where_the_terminal_can_and_undoes_elsewhere(
    can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended: list[App[object]] = []
    monkeypatch.setattr(App, "action_suspend_process", lambda self: suspended.append(self))
    monkeypatch.setattr(HeadlessDriver, "can_suspend", can)
    async with started() as (app, pilot, _):
        app.chat.prompt.insert("words")
        await pilot.press("ctrl+z")
        assert (app.chat.prompt.text, bool(suspended)) == (("words", True) if can else ("", False))
