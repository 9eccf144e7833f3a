"""Advice, what-if, race, replay and ledger through the keyboard, over the scripted engine."""

import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import PlainFacts
from specchat.engine.protocol.requests import Cancel, Change, Generate
from specchat.insight import replay
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.board import Board
from specchat.tui.screens.ledger import LedgerScreen
from specchat.tui.screens.race import RaceScreen
from specchat.tui.screens.replay import ReplayScreen
from specchat.tui.screens.what_if import WhatIfScreen
from tests.fake import INFO, FakeEngine

LONG = " ".join(f"word{n}" for n in range(400))
SIZES = [(120, 36), (60, 15), (40, 12)]
KEYS = ("f4", "f6", "f10", "f12", "r", "space", "left", "right", "plus", "minus", "home", "end", "up", "down", "tab",
        "escape", "q", "f2", "alt+n", "x")  # fmt: skip
Test = Callable[[SpecchatApp, Pilot[None]], Awaitable[None]]


async def answered(
    test: Test, size: tuple[int, int] = (120, 36), text: str = LONG, engine: FakeEngine | None = None
) -> None:
    """Run `test` after one reply."""
    app = make_app(engine or FakeEngine((text,)), replace(LAUNCH, preferences=Preferences(seed=42)))
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count")
        await test(app, pilot)


async def shown(pilot: Pilot[None], app: SpecchatApp, *texts: str) -> None:
    for text in texts:
        await wait_until(pilot, lambda text=text: text in screen_text(app))


async def closed(app: SpecchatApp, pilot: Pilot[None]) -> None:
    """Escape leads back to the chat."""
    await pilot.press("escape")
    await wait_until(pilot, lambda: app.screen is app.chat)


def rests(app: SpecchatApp) -> bool:
    assert isinstance(app.screen, Board)
    assert app.screen._timer is not None
    return not app.screen._timer._active.is_set()


# Advice and ledger


async def test_one_key_applies_the_advice() -> None:
    slow = FakeEngine((LONG,), info=replace(INFO, plain=PlainFacts(600.0)))

    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await shown(pilot, app, "slower than plain", "F4: turn drafting off", "lost")
        await pilot.press("f4")
        assert app.session.settings.speculation == Speculation()
        await shown(pilot, app, "plain from the next reply on")
        assert "F4:" not in screen_text(app)
        await pilot.press("f4")
        await shown(pilot, app, "no faster setting is known yet")

    await answered(test, engine=slow)


async def test_advice_is_taken_at_the_next_step_of_a_running_reply() -> None:
    clock = [0.0]
    engine = FakeEngine((LONG,), tokens_per_second=1, clock=lambda: clock[0],
                        info=replace(INFO, plain=PlainFacts(600.0)))  # fmt: skip
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        clock[0] = 200
        await shown(pilot, app, "F4: turn drafting off")
        await pilot.press("f4")
        await shown(pilot, app, "plain from the next step on")
        assert isinstance(engine.requests[-1], Change)
        clock[0] = 999
        await wait_until(pilot, lambda: app.session.reply is None)
        shown_rows = " ".join(line.content.plain for line, _ in app.chat.transcript.chat_rows.rows)
        assert re.search(r"⟨draft x5 → plain at token \d+ · .* tok/s⟩", shown_rows)


async def test_the_ledger_survives_new_chats() -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await shown(pilot, app, "saved so far")
        await pilot.press("alt+n")
        await ask(app, pilot, "again")
        await app.chat.do("ledger")
        await shown(pilot, app, "saved this session", "Draft model")
        assert isinstance(app.screen, LedgerScreen)
        total = app.session.ledger.total
        assert (total.replies, total.tokens) == (2, 800)
        assert f"{total.times:.2f}x" in screen_text(app)
        await closed(app, pilot)

    await answered(test)


@pytest.mark.parametrize("size", SIZES)
async def test_an_empty_ledger_says_so(size: tuple[int, int]) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await app.chat.do("ledger")
        await shown(pilot, app, "no reply has ended yet")
        await closed(app, pilot)


# What if


@pytest.mark.parametrize("size", SIZES)
async def test_what_if_marks_lengths_and_applies_one(size: tuple[int, int]) -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await pilot.press("f10")
        await shown(pilot, app, "drafted", "in use")
        assert isinstance(app.screen, WhatIfScreen)
        assert app.screen.query_one(OptionList).highlighted == 5
        await pilot.press("up", "up", "enter")
        await wait_until(pilot, lambda: app.screen is app.chat)
        assert app.session.settings.speculation == Speculation.of("draft", 3)
        await pilot.press("f10")
        await wait_until(pilot, lambda: app.screen is not app.chat)
        assert app.screen.query_one(OptionList).highlighted == 3
        await pilot.press("home", "enter")
        await wait_until(pilot, lambda: app.screen is app.chat)
        assert app.session.settings.speculation == Speculation()
        await pilot.press("f10")
        await wait_until(pilot, lambda: app.screen is not app.chat)
        await closed(app, pilot)
        assert app.session.settings.speculation == Speculation()

    await answered(test, size)


@pytest.mark.parametrize("key", ["f6", "f10", "f12"])
async def test_without_a_reply_there_is_nothing_to_see(key: str) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await pilot.press(key)
        await wait_until(pilot, lambda: "first:" in screen_text(app) or "yet" in screen_text(app))
        assert app.screen is app.chat


# Replay


async def test_the_replay_cuts_no_figure_where_there_is_little_room() -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await app.chat.do("replay")
        await wait_until(pilot, lambda: isinstance(app.screen, ReplayScreen))
        await pilot.press("home", "right")
        await shown(pilot, app, "step 1 of", "verify")
        assert "…" not in screen_text(app)

    await answered(test, (50, 15))


@pytest.mark.parametrize("size", SIZES)
async def test_a_reply_is_replayed_and_walked(size: tuple[int, int]) -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await app.chat.do("replay")
        await wait_until(pilot, lambda: isinstance(app.screen, ReplayScreen))
        screen = app.screen
        assert isinstance(screen, ReplayScreen)
        await pilot.press("space")
        if screen.playback.playing:  # it had come to its end already, and began anew
            await pilot.press("space")
        await pilot.press("home")
        await shown(pilot, app, "step 0 of")
        await wait_until(pilot, lambda: rests(app))
        await pilot.press("right")
        await shown(pilot, app, "step 1 of", "accepted 3 of 5", "word3")
        await pilot.press("right", "right", "left")
        await shown(pilot, app, "step 2 of", "accepted 0 of 5")
        await pilot.press("end")
        await shown(pilot, app, "word399")
        await pilot.press("plus", "plus", "plus", "plus", "space")
        assert screen.playback.playing
        screen.playback.advance(8)
        await wait_until(pilot, lambda: screen.playback.ended and rests(app))
        await closed(app, pilot)
        assert app.session.last_reply is not None
        assert app.session.last_reply.text == LONG

    await answered(test, size)


async def test_any_reply_of_the_chat_can_be_replayed_by_its_number() -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await ask(app, pilot, "again")
        await app.chat.do("replay", "1")
        await pilot.press("end")
        await shown(pilot, app, "the very")
        await closed(app, pilot)
        await app.chat.do("replay", "7")
        await shown(pilot, app, "there is no reply 7; this chat has 2")

    await answered(test, engine=FakeEngine(("the very first", "second")))


# Race


@pytest.mark.parametrize("size", SIZES)
async def test_a_race_is_run_shown_and_replayed(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "SHOWN_S", 0.5)

    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        turns, reply = list(app.session.conversation.turns), app.session.last_reply
        await pilot.press("f6")
        await wait_until(pilot, lambda: isinstance(app.screen, RaceScreen))
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        await shown(pilot, app, "plain", "draft x5", "outputs identical: yes")
        await wait_until(pilot, lambda: screen.view.moving)
        for _ in range(2):  # the end of the race itself, then the one of its replay
            screen.view.advance(60)
        await wait_until(pilot, lambda: rests(app))
        await shown(pilot, app, "finished", "x plain")
        await pilot.press("r")
        assert screen.view.moving
        await closed(app, pilot)
        assert app.session.racing.race is None
        assert (app.session.conversation.turns, app.session.last_reply) == (turns, reply)

    await answered(test, size)


async def test_escape_stops_a_running_race() -> None:
    clock = [0.0]
    engine = FakeEngine((LONG,), tokens_per_second=1, clock=lambda: clock[0])
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        clock[0] = 999
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.press("f6")
        clock[0] = 1030
        await shown(pilot, app, "word20", "one lane after the other")
        await closed(app, pilot)
        assert isinstance(engine.requests[-1], Cancel)
        assert not app.session.racing.running
        await ask(app, pilot, "again", wait=False)
        clock[0] = 2999
        await wait_until(pilot, lambda: app.session.reply is None)
        assert len(app.session.conversation.turns) == 2


async def test_a_race_shows_what_went_wrong() -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        app.engine.fail_reply("memory", "out of [memory]")  # type: ignore[attr-defined]
        await pilot.press("f6")
        await shown(pilot, app, "no result: out of [memory]")
        await closed(app, pilot)

    await answered(test, (80, 24))


# Anything else


@pytest.mark.rotated(2)
@pytest.mark.parametrize("size", [(100, 30), (60, 15)])
async def test_random_keys_do_no_harm(size: tuple[int, int]) -> None:
    chance = random.Random(5)

    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        for _ in range(60):
            await pilot.press(chance.choice(KEYS))
            if chance.random() < 0.05:
                await pilot.resize_terminal(chance.randint(5, 130), chance.randint(3, 40))
        while len(app.screen_stack) > 1:
            await pilot.press("escape")
            await pilot.pause()
        await wait_until(pilot, lambda: app.session.reply is None)
        app.chat.prompt.load_text("")
        await ask(app, pilot, "are you there")
        assert app.session.last_reply is not None
        assert app.session.last_reply.text

    await answered(test, size, "one two three four five six " * 20)


async def test_a_race_is_asked_with_the_seed_of_the_reply() -> None:
    async def test(app: SpecchatApp, pilot: Pilot[None]) -> None:
        await pilot.press("f6")
        await shown(pilot, app, "outputs identical: yes")
        requests = [request for request in app.engine.requests if isinstance(request, Generate)]  # type: ignore[attr-defined]
        assert {request.sampling.seed for request in requests} == {42}

    await answered(test)
