"""What an empty chat says and offers, and what is said while the first reply is written."""

import string
from dataclasses import replace

import pytest
from conftest import CATALOG, LAUNCH, ask, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, status

from specchat.engine.protocol.options import Limits
from specchat.service.settings import Preferences
from specchat.tui.actions.table import ACTIONS
from specchat.tui.composing.suggestions import SUGGESTIONS
from specchat.tui.keys import Keys
from specchat.tui.screens.about import AboutScreen
from specchat.tui.widgets.welcome import Welcome
from tests.fake import FakeEngine
from tests.parts import changed

DEMO = changed(LAUNCH, fallback=CATALOG.pairs[0])


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 36), (200, 60)])
async def test_a_stranger_is_told_what_it_is_and_what_to_ask(size: tuple[int, int]) -> None:
    app = make_app(FakeEngine(), DEMO)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await pilot.pause()
        shown = " ".join(screen_text(app).split())
        assert "The built-in demo model is tiny, for trying the app." in shown
        assert all(f"· {words}" in shown for words in SUGGESTIONS)
        assert "Press ↓ for an example" in shown
        assert "exact" not in shown


async def test_the_suggestions_have_a_row_each_in_the_smallest_window() -> None:
    app = make_app(FakeEngine(), DEMO)
    async with app.run_test(size=(40, 12)) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "· Write a Python" in screen_text(app))
        shown = screen_text(app)
        assert all(f"· {words[:30]}" in shown for words in SUGGESTIONS)
        assert "Enter sends it." in shown


async def test_nothing_is_drawn_before_there_is_room() -> None:
    welcome = Welcome(Keys(ACTIONS))
    welcome.show_pair(None, "demo", "", built_in=True, again=False)
    assert str(welcome.render()) == ""


async def test_what_loads_is_said_once() -> None:
    engine = FakeEngine()
    engine.holds_loads = True
    app = make_app(engine, DEMO)
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "reading" in screen_text(app))
        assert screen_text(app).count("reading models/demo") == 1
        assert "The built-in demo model" in screen_text(app)
        assert "The answer comes as soon as the model is ready" in screen_text(app)
        await app.chat.do("about")
        await wait_until(pilot, lambda: "demo is being loaded" in screen_text(app))
        assert "no model is loaded" not in screen_text(app)


async def test_another_pair_is_not_called_tiny() -> None:
    app = make_app(FakeEngine(), replace(DEMO, pair=CATALOG.pairs[1]))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await pilot.pause()
        assert "Built-in" not in screen_text(app)
        assert "as soon as the model is ready" not in screen_text(app)


async def test_a_prompt_may_begin_with_any_character() -> None:
    app = make_app(FakeEngine(("Yes.",)), DEMO)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for first in ("a", "Z", "0", *string.punctuation):
            await pilot.press(first, "x")
            assert app.chat.prompt.text == f"{first}x"
            await pilot.press("ctrl+c")


async def test_down_goes_through_the_examples_in_an_empty_chat() -> None:
    app = make_app(FakeEngine(("Yes.",)), DEMO)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for words in (*SUGGESTIONS, SUGGESTIONS[0]):
            await pilot.press("down")
            assert app.chat.prompt.text == words
        await pilot.press(" ", "a", "down")
        assert app.chat.prompt.text == f"{SUGGESTIONS[0]} a"
        await ask(app, pilot, "mine")
        await pilot.press("down")
        assert app.chat.prompt.text == ""
        await pilot.press("alt+n", "up", "down", "down")
        assert app.chat.prompt.text == SUGGESTIONS[0]
        await pilot.press("up", "down")  # as among earlier prompts
        assert app.chat.prompt.text == SUGGESTIONS[0]


async def test_hardware_and_exactness_are_in_the_about_view() -> None:
    app = make_app(FakeEngine(), DEMO)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await app.chat.do("about")
        assert isinstance(app.screen, AboutScreen)
        await wait_until(pilot, lambda: "cannot change the text: nothing is computed." in screen_text(app))
        assert "measured here at load" in screen_text(app)


async def test_while_a_reply_streams_the_status_says_so_and_the_first_token_is_timed() -> None:
    async with being_answered(LONG, (120, 36), 20, "word10") as (app, pilot, _):
        await wait_until(pilot, lambda: "writing; esc stops" in status(app))
        await wait_until(pilot, lambda: "word3" in screen_text(app))
        reply = app.session.reply
        assert reply is not None
        row = next(line for line in screen_text(app).splitlines() if "first token" in line)
        assert "–" not in row.split("first token")[1]


@pytest.mark.parametrize("policy", ["refuse", "drop-oldest"])
async def test_a_full_context_leaves_out_the_oldest_turns_unless_told_to_refuse(policy: str) -> None:
    assert Limits().context == "drop-oldest"
    long = " ".join(["word"] * 400)
    app = make_app(FakeEngine((long,)), replace(LAUNCH, preferences=Preferences(limits=Limits(context=policy))))  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for _ in range(2):
            await ask(app, pilot, long)
        await pilot.press("ctrl+end")
        app.chat.prompt.insert(long)
        await wait_until(pilot, lambda: "tokens" in status(app))
        await pilot.press("enter")
        if policy == "refuse":
            await wait_until(pilot, lambda: "/new starts a new chat" in screen_text(app))
            assert app.chat.prompt.text == long
        else:
            await wait_until(pilot, lambda: len(app.session.conversation.turns) == 3)
            await wait_until(pilot, lambda: app.session.reply is None)
            reply = app.session.last_reply
            assert reply is not None
            assert reply.prompt.dropped > 0
