"""Sentences in the status row go when what they tell is over."""

from dataclasses import replace

import pytest
from conftest import CATALOG, LAUNCH, ask, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, status
from textual.events import AppBlur
from textual.widgets._toast import Toast

from specchat.engine.protocol.events import AwaitingClient
from specchat.engine.protocol.pair_info import DraftFacts
from specchat.service.settings import Preferences
from specchat.tui import notice
from specchat.tui.actions.models import use_pair
from specchat.tui.app import SpecchatApp
from tests.fake import INFO, FakeEngine
from tests.parts import changed


async def test_after_a_while_in_which_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "_SHOWN_FOR", 0.1)
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        monkeypatch.setattr(notice, "_READ", 0.001)
        app.chat.say("said at length")
        await pilot.pause(0.5)
        assert "said at length" in status(app)
        monkeypatch.setattr(notice, "_READ", 100)
        app.chat.say("said once")
        assert "said once" in status(app)
        await wait_until(pilot, lambda: "said" not in status(app))


@pytest.mark.parametrize("action", ["regenerate-here", "continue"])
async def test_when_a_reply_begins(action: str) -> None:
    async with being_answered(LONG, (100, 24), 30, "word20") as (app, pilot, _):
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: "/continue goes on" in status(app))
        await app.chat.do(action)
        await wait_until(pilot, lambda: "esc stops" in status(app))


async def test_a_refusal_when_the_reply_has_ended() -> None:
    async with being_answered(LONG, (100, 24), 30, "word20") as (app, pilot, clock):
        await app.chat.do("regenerate")
        assert "a reply is running" in status(app)
        clock.now = 9999
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: "a reply is running" not in status(app))


@pytest.mark.parametrize("now", [31, 9999], ids=["a step", "the end"])
async def test_the_wait_for_another_program_when_the_reply_goes_on(now: int) -> None:
    async with being_answered(LONG, (100, 24), 30, "word20") as (app, pilot, clock):
        engine, reply = app.session.engine, app.session.reply
        assert isinstance(engine, FakeEngine)
        assert reply is not None
        engine._ready.append(AwaitingClient(reply.id, "serve", 12))
        engine._notify()
        await wait_until(pilot, lambda: "The engine answers serve" in status(app))
        clock.now = now
        await wait_until(pilot, lambda: "The engine answers serve" not in status(app))


async def test_a_start_of_the_engine_when_it_is_loaded() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        engine.holds_loads = True
        engine.die()
        await wait_until(pilot, lambda: "starting again" in status(app))
        engine.holds_loads = False
        engine.restart()
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "starting again" not in status(app))


async def test_a_failed_load_stays_though_the_pair_before_is_back() -> None:
    engine = FakeEngine()
    app = make_app(engine, LAUNCH, CATALOG)
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        engine.fail_load("load", "No connection.")
        use_pair(app.chat, CATALOG.pairs[1])
        await wait_until(pilot, lambda: app.session.loaded.loading is None)
        await wait_until(pilot, lambda: app.session.loaded.info and app.session.loaded.name == "demo")
        await wait_until(pilot, lambda: "No connection. Still using demo" in status(app))


async def test_when_another_pair_is_chosen() -> None:
    app = make_app(FakeEngine(), LAUNCH, CATALOG)
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        app.chat.say("no model is loaded: F3 chooses one", bad=True)
        use_pair(app.chat, CATALOG.pairs[1])
        assert "F3 chooses one" not in status(app)


async def test_warnings_leave_the_prompt_free() -> None:
    app = make_app(FakeEngine(), changed(LAUNCH, warnings=("The folder cannot be made.",)))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "cannot be made" in screen_text(app))
        toast, entry = app.screen.query_one(Toast).region, app.screen.query_one("#entry").region
        assert toast.height
        assert not toast.intersection(entry)


@pytest.mark.parametrize("size", [(40, 14), (80, 24)])
async def test_warnings_at_the_start_fit_the_window(size: tuple[int, int]) -> None:
    warning = " ".join(f"{n:04}" for n in range(40))
    app = make_app(FakeEngine(), changed(LAUNCH, warnings=(warning,)))
    async with app.run_test(size=size, notifications=True) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "0000" in screen_text(app))
        assert [n for n in range(40) if f"{n:04}" not in screen_text(app)] == []


async def test_a_draft_that_is_too_short_for_a_chat_is_told_once() -> None:
    app = make_app(
        FakeEngine(("One two three.",), info=replace(INFO, draft=DraftFacts(1_000_000, context=5))),
        replace(LAUNCH, preferences=Preferences(strategy="draft")),
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "one two three four five")
        await wait_until(pilot, lambda: "the draft model holds 5 tokens" in status(app))
        app.chat.say("")
        await ask(app, pilot, "more")
        assert "the draft model holds" not in status(app)


@pytest.mark.parametrize("away", [True, False])
async def test_a_reply_that_ends_is_told_outside_where_one_looks_elsewhere(
    away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()
    monkeypatch.setattr(SpecchatApp, "_write_codes", lambda _, codes: told.append(codes))
    launch = changed(LAUNCH, config=changed(LAUNCH.config, notify="bell"))
    async with being_answered(LONG, (100, 24), 30, "word20", launch) as (app, pilot, clock):
        if away:
            app.post_message(AppBlur())
            await wait_until(pilot, lambda: not app.app_focus)
        assert "\a" not in told
        clock.now = 9999
        await wait_until(pilot, lambda: app.session.reply is None)
        if away:
            await wait_until(pilot, lambda: told.count("\a") == 1)
        else:
            await pilot.pause()
            assert "\a" not in told
