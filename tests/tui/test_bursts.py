"""Keys that come in one burst go where they were meant, and choices are made by the keys that people try."""

import asyncio
import os
from random import Random

from conftest import LAUNCH, answered, ask, loaded, make_app, screen_text, wait_until
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from specchat.config.paths import shipped
from specchat.config.presets import load_presets
from specchat.tui.app import SpecchatApp
from specchat.tui.widgets.choice import Choice
from specchat.tui.widgets.find_bar import FindBar
from specchat.tui.widgets.panel import EnginePanel
from tests.fake import FakeEngine
from tests.parts import changed


def press(app: SpecchatApp, key: str) -> None:
    character = {"space": " ", "slash": "/"}.get(key, key if len(key) == 1 else None)
    app.post_message(events.Key(key, character))


async def burst(app: SpecchatApp, pilot: Pilot[None], *keys: str) -> None:
    """Send keys without waiting for what each of them does."""
    for key in keys:
        press(app, key)
    await pilot.pause(0.2)


async def test_words_typed_after_a_key_go_where_it_leads() -> None:
    async with answered("A fox and a lamp.", (100, 30)) as (app, pilot):
        for keys, typed in (
            (("ctrl+up", "k", "j"), ""),
            (("ctrl+up", "k", "i", *"ink"), "ink"),
            (("ctrl+f", *"fox"), "fox"),
            (("ctrl+up", "slash", *"lamp"), "lamp"),
            (("f9", *"night"), "night"),
        ):
            await burst(app, pilot, *keys)
            places = {"f": app.chat.query_one(FindBar), "l": app.chat.query_one(FindBar), "n": app.chat.sidebar}
            if place := places.get(typed[:1]):
                assert place.query_one(Input).value == typed
            assert app.chat.prompt.text == ("ink" if typed == "ink" else "")
            app.chat.prompt.clear()
            await pilot.press("escape", "escape")


async def test_letters_of_a_jump_are_no_commands() -> None:
    """`f` puts letters on what is in view; the one typed then goes there, whatever it does otherwise."""
    code = "\n\n".join(f"```\nfox({n})\n```" for n in range(3))
    async with answered(code, (100, 40)) as (app, pilot):
        await burst(app, pilot, "ctrl+up", "f")
        assert "f" in app.chat.transcript._labels
        await burst(app, pilot, "f")
        assert not app.chat.transcript.labelled
        assert app.chat.transcript.has_focus


async def test_words_typed_after_enter_are_the_next_prompt() -> None:
    app = make_app(FakeEngine(("word " * 200,), tokens_per_second=1))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await burst(app, pilot, *"one", "enter", *"two", "enter", *"three", "enter", *"four")
        assert [turn.prompt for turn in app.session.conversation.turns] == ["one"]
        assert [waiting.text for waiting in app.session.waiting] == ["two", "three"]
        assert app.chat.prompt.text == "four"


async def test_enter_takes_the_command_that_was_typed() -> None:
    async with answered("A fox and a lamp.", (100, 30)) as (app, pilot):
        await pilot.press("slash", "t", "h")
        await wait_until(pilot, lambda: "/theme" in screen_text(app))
        await burst(app, pilot, "backspace", "backspace", *"new", "enter")
        assert (app.chat.prompt.text, app.chat.notice.text, len(app.session.conversation.turns)) == ("", "", 0)


async def test_space_and_enter_choose_in_the_settings() -> None:
    presets, _ = load_presets([shipped("presets.toml")])
    app = make_app(FakeEngine(), changed(LAUNCH, presets=presets))
    async with app.run_test(size=(80, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f2")
        await wait_until(pilot, lambda: "temperature" in str(app.screen.focused))
        app.screen.query_one("#strategy").focus()
        await pilot.press("home", "space")
        assert app.session.settings.strategy == "plain"
        context = app.screen.query_one("#context", Choice)
        app.screen.set_focus(context)
        await pilot.press("enter")
        assert app.session.settings.limits.context == "keep-ends"
        await pilot.press("space")
        assert app.session.settings.limits.context == "refuse"
        theme = str(app.screen.query_one("#theme", Choice).render())
        assert theme.endswith("›")


async def test_renaming_begins_with_all_selected() -> None:
    async with answered("A fox.", (100, 30)) as (app, pilot):
        await app.chat.do("rename-chat")
        await pilot.pause()
        await pilot.press(*"new", "enter")
        await wait_until(pilot, lambda: app.session.conversation.name == "new")


async def test_a_key_hides_the_panel_and_brings_it_back() -> None:
    async with answered("A fox.", (140, 40)) as (app, pilot):
        panel = app.chat.query_one(EnginePanel)
        assert panel.display
        await pilot.press("alt+p")
        assert not panel.display
        await pilot.press("alt+p")
        assert panel.display


async def test_letters_do_not_overtake_editing_keys() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await burst(app, pilot, *"foz", "backspace", "x", "home", "a", "space", "end", ".")
        assert app.chat.prompt.text == "a fox."


TRIES = int(os.environ.get("SPECCHAT_SETTINGS_TRIES", "4"))
"""How often settings are typed, each time at other delays and after another way to clear the field."""
CLEAR = ["end", "ctrl+u"], ["backspace"] * 4, ["ctrl+u"], list[str]()
SLOWEST_S = 0, 0.05, 0.01, 0.001


async def test_no_setting_typed_is_lost_at_any_delay_while_a_reply_is_written() -> None:
    random = Random(5)
    app = make_app(FakeEngine(("word " * 5000,), tokens_per_second=100))
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        for number in range(TRIES):
            if app.session.reply is None:
                await ask(app, pilot, "hi", wait=False)
            temperature, seed = f"0.{number % 90 + 10}", str(number)
            clear, slowest = CLEAR[number % 4], SLOWEST_S[(number + number // 4) % 4]
            keys = ["ctrl+o", *clear, *temperature, *["tab"] * 8, *seed, "escape", *"word", "ctrl+u"]
            for key in keys:
                press(app, key)
                await asyncio.sleep(random.uniform(0, slowest))
            await wait_until(pilot, lambda: app.screen is app.chat and not app.chat.prompt.text)
            settings = app.session.settings
            assert (settings.sampling.temperature, settings.seed) == (float(temperature), number)
