"""The chat through the keyboard, over the scripted engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH, answered, ask, loaded, make_app, screen_text, wait_until
from textual import events
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.engine.protocol.events import Failed, Started
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import StrategyStatus, TemplateFacts
from specchat.engine.protocol.requests import Cancel, Change, Count, Generate
from specchat.engine.strategies import STRATEGIES
from specchat.insight.footer import footer
from specchat.service.settings import as_data, from_data
from specchat.tui.actions.chat import choose_settings
from specchat.tui.actions.models import use_pair
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tui.screens.help import HelpScreen
from specchat.tui.screens.models import ModelsScreen
from specchat.tui.screens.palette import Palette
from specchat.tui.screens.settings import SettingsScreen
from specchat.tui.text.strategies import rows
from specchat.tui.widgets.choice import Choice
from specchat.tui.widgets.field import FieldInput, FieldNote
from specchat.tui.widgets.panel import EngineLine, EnginePanel
from specchat.tui.widgets.rows import TwoSided
from tests.fake import INFO, FakeEngine
from tests.parts import changed
from tests.service.made import Clock

STORY = "Once there was a small fox.\n\nShe kept a lamp.\n\n```python\nprint('lamp')\n```\n\n- one\n- two"
LONG = " ".join(f"word{n}" for n in range(400))


def slow(text: str = LONG) -> tuple[FakeEngine, Clock]:
    """An engine whose tokens come when the clock is moved, one a second."""
    clock = Clock()
    return FakeEngine((text,), tokens_per_second=1, clock=clock), clock


@asynccontextmanager
async def being_answered(
    reply: str, size: tuple[int, int], now: float, shown: str, launch: Launch = LAUNCH
) -> AsyncIterator[tuple[SpecchatApp, Pilot[None], Clock]]:
    """The app while `reply` is written, a token a second, when the clock says `now` and `shown` is on the screen."""
    engine, clock = slow(reply)
    app = make_app(engine, launch)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        clock.now = now
        await until_shown(pilot, app, shown)
        yield app, pilot, clock


def status(app: SpecchatApp) -> str:
    return str(app.chat.query_one("#status", TwoSided).render())


async def until_shown(pilot: Pilot[None], app: SpecchatApp, text: str) -> None:
    await wait_until(pilot, lambda: text in screen_text(app))


async def test_a_prompt_is_sent_and_answered() -> None:
    engine = FakeEngine((STORY,))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        assert "type your question. Enter sends it." in screen_text(app)
        await pilot.press(*"hi", "ctrl+j", *"you", "enter")
        await wait_until(pilot, lambda: app.session.last_reply is not None and app.session.reply is None)
        await until_shown(pilot, app, "She kept a lamp.")
        shown = screen_text(app)
        assert app.session.conversation.turns[0].prompt == "hi\nyou"
        for words in (
            "demo · draft x5 · temperature 0.7",
            "╭─ python ─",
            "• two",
            "tokens per step",
            "tok/s",
        ):
            assert words in shown
        assert app.chat.prompt.text == ""
        assert app.chat.transcript.text.startswith("hi\nyou\n\nOnce there was a small fox.")


async def test_the_engine_starts_after_the_first_frame_and_closes_with_the_app() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    assert not engine.alive
    async with app.run_test() as pilot:
        await loaded(app, pilot)
        assert engine.alive
    assert not engine.alive


async def test_text_streams() -> None:
    engine, clock = slow()
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        for now in (30, 200):
            clock.now = now
            await until_shown(pilot, app, f"word{now - 10}")
        assert app.session.reply is not None
        clock.now = 999
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.session.last_reply is not None
        assert footer(app.session.last_reply) in screen_text(app)


async def test_steps_put_off_by_next_to_nothing_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(FakeEngine())
    async with app.run_test() as pilot:
        await loaded(app, pilot)
        drawn: list[bool] = []
        monkeypatch.setattr(app.chat.feed, "_draw_steps", lambda: drawn.append(True))
        app.chat.feed._draw_after(1e-9)
        await wait_until(pilot, lambda: drawn)


async def test_escape_stops_and_keeps_the_partial_reply() -> None:
    async with being_answered(LONG, (120, 36), 30, "word20") as (app, pilot, _):
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert any(isinstance(request, Cancel) for request in app.engine.requests)
        await until_shown(pilot, app, "stopped")
        assert "word20" in screen_text(app)


async def test_a_reply_that_repeats_itself_says_so_until_it_is_stopped() -> None:
    async with being_answered("The home of " * 2000, (120, 36), 20, "The home of The home") as (app, pilot, clock):
        assert "writing; esc stops" in status(app)
        clock.now = 400
        await wait_until(pilot, lambda: "the reply repeats itself; esc stops it" in status(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert "repeats" not in status(app)


async def test_regenerate_shows_the_new_reply() -> None:
    app = make_app(FakeEngine(("first answer", "second answer")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("alt+r")
        assert "there is no reply" in status(app)
        await ask(app, pilot, "hi")
        await pilot.press("alt+r", "enter")
        await until_shown(pilot, app, "second answer")
        shown = screen_text(app)
        assert "first answer" not in shown
        assert "reply 2" in shown


async def test_a_new_chat_is_empty() -> None:
    async with answered(STORY, (120, 36)) as (app, pilot):
        await pilot.press("alt+n")
        await until_shown(pilot, app, "type your question. Enter sends it.")
        assert "small fox" not in screen_text(app)
        await ask(app, pilot, "again")
        await until_shown(pilot, app, "small fox")


async def test_settings_change_a_running_reply() -> None:
    async with being_answered(LONG, (120, 40), 20, "word10") as (app, pilot, clock):
        await pilot.press("f2")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        app.screen.query_one("#strategy").focus()
        names = [row.id for row in rows({})]
        await pilot.press(*["down"] * (names.index("lookup") - names.index("draft")), "enter")
        await wait_until(pilot, lambda: any(isinstance(request, Change) for request in app.engine.requests))
        assert app.session.settings.speculation == Speculation("lookup", 8)
        await pilot.press("escape")
        clock.now = 60
        await until_shown(pilot, app, "⟨draft x5 → lookup x8 at token")
        assert "lookup x8" in str(app.chat.query_one("#header", TwoSided).render())


async def test_settings_have_a_row_a_field_in_small_windows_and_say_mistakes_whole() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(45, 14)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        note = app.screen.query_one("#temperature-note", FieldNote)
        await wait_until(pilot, lambda: note.size.height == 1)
        app.screen.query_one("#temperature", FieldInput).value = "warm"
        await wait_until(pilot, lambda: note.size.height > 3)
        app.screen.query_one("#temperature", FieldInput).value = "1"
        await wait_until(pilot, lambda: note.size.height == 1)


async def test_settings_fields_take_numbers_and_say_what_is_wrong() -> None:
    engine = FakeEngine()
    app = make_app(engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        screen = app.screen
        temperature = screen.query_one("#temperature", FieldInput)
        temperature.focus()
        temperature.value = "warm"
        await pilot.pause()
        assert "needs a number from 0 to 10" in str(screen.query_one("#temperature-note", FieldNote).render())
        assert app.session.settings.sampling.temperature == 0.7
        temperature.value = "0.5"
        await pilot.press("up")
        assert app.session.settings.sampling.temperature == 0.6
        screen.query_one("#seed", FieldInput).value = "123"
        length = screen.query_one("#draft_length", FieldInput)
        length.focus()
        length.value = "7"
        await pilot.pause()
        assert app.session.settings.draft_length == 5
        screen.query_one("#acceptance", Choice).value = "ratio"
        screen.query_one("#stop", FieldInput).value = "END|\\n\\n"
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        settings = app.session.settings
        assert (settings.draft_length, settings.acceptance, settings.limits.stop) == (7, "ratio", ("END", "\n\n"))
        await ask(app, pilot, "hi")
        request = next(request for request in engine.requests if isinstance(request, Generate))
        assert (request.sampling.seed, request.sampling.temperature) == (123, 0.6)


async def test_arguments_of_the_template_are_chosen_where_it_has_them() -> None:
    switch = (True, False)
    choices = (("enable_thinking", switch), ("thinking", switch), ("reasoning_effort", ("low", "high")))
    engine = FakeEngine(info=replace(INFO, template=TemplateFacts(choices=choices)))
    app = make_app(engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        assert not app.screen.query("#thinking"), "an older name of the same switch"
        app.screen.query_one("#enable_thinking", Choice).focus()
        await pilot.press("right", "right", "tab", "right")
        await until_shown(pilot, app, "[off]")
        await until_shown(pilot, app, "[low]")
        await pilot.press("escape")
        settings = app.session.settings
        assert settings.template == (("enable_thinking", False), ("reasoning_effort", "low"))
        assert from_data(json.loads(json.dumps(as_data(settings)))) == settings
        await ask(app, pilot, "hi")
        request = next(request for request in engine.requests if isinstance(request, Generate))
        assert request.template == settings.template
        app.chat.prompt.insert("word")
        await wait_until(pilot, lambda: any(isinstance(one, Count) for one in engine.requests))
        assert all(one.template == settings.template for one in engine.requests if isinstance(one, Count))
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        app.screen.query_one("#enable_thinking", Choice).focus()
        await pilot.press("right")
        await pilot.press("escape")
        assert app.session.settings.template == (("reasoning_effort", "low"),)
        app.session.change(replace(settings, template=(("reasoning_effort", "max"),)))
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        assert app.screen.query_one("#reasoning_effort", Choice).value == "as set", "of another pair's template"


async def test_strategies_that_cannot_be_used_are_listed_with_the_reason() -> None:
    *others, last = STRATEGIES
    statuses = (
        *(StrategyStatus(name, True) for name in others),
        StrategyStatus(last, False, "the [target] has too few layers\x1b[2J"),
    )
    app = make_app(FakeEngine(info=replace(INFO, strategies=statuses)))
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        app.screen.query_one("#strategy").focus()
        await until_shown(pilot, app, "the [target] has too few layers␛[2J")
        await pilot.press("end", "enter")
        await until_shown(pilot, app, STRATEGIES[others[-1]].summary[:60])
        await pilot.press("escape")
        assert app.session.settings.strategy == others[-1]


async def test_what_cannot_be_used_is_listed_last_and_takes_one_row_a_reason() -> None:
    reasons = {"eagle": "the file is damaged", "medusa": "no heads", "eagle3": "no heads", "draft-tree": "no heads"}
    statuses = tuple(StrategyStatus(name, name not in reasons, reasons.get(name, "")) for name in STRATEGIES)
    app = make_app(FakeEngine(info=replace(INFO, strategies=statuses)))
    async with app.run_test(size=(100, 60)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        await until_shown(pilot, app, "Draft tree, EAGLE-3, Medusa: no heads")
        text = screen_text(app)
        assert text.index("SWIFT") < text.index("no heads") < text.index("EAGLE: the file is damaged")
        assert text.count("no heads") == 1


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
async def test_settings_open_on_sampling_and_the_system_prompt(size: tuple[int, int]) -> None:
    async with answered(STORY, size) as (app, pilot):
        await pilot.press("ctrl+o")
        await until_shown(pilot, app, "temperature")
        assert all(word in screen_text(app) for word in ("system prompt", "top-k", "frequency"))
        await pilot.press(*"0.9", "tab", *"Be kind.", "tab", *"40", "escape")
        settings = app.session.settings.sampling
        assert (settings.temperature, settings.top_k) == (0.9, 40)
        assert app.session.conversation.system == "Be kind."


async def test_settings_keep_what_is_valid_beside_what_is_not() -> None:
    async with answered(STORY, (80, 24)) as (app, pilot):
        await pilot.press("ctrl+o")
        await until_shown(pilot, app, "temperature")
        await pilot.press(*"0.30.9", "tab", "tab", *"x", "tab", *"0.5", "escape")
        await pilot.pause()
        assert app.session.settings.sampling.top_p == 0.5
        assert app.chat.notice.text == (
            "temperature stays 0.7: 0.30.9 is not valid, it needs a number from 0 to 10; "
            "top-k stays 0: x is not valid, it needs a whole number from 0"
        )


async def test_settings_say_what_has_no_effect_beside_another() -> None:
    async with answered(STORY, (80, 50)) as (app, pilot):
        await pilot.press("ctrl+o")
        await until_shown(pilot, app, "temperature")
        await pilot.press("tab", "tab", "tab", *"0.5", "enter")
        await until_shown(pilot, app, "1 is off; the likeliest adding up to this")
        await pilot.press("shift+tab", "shift+tab", "shift+tab", *"0", "enter")
        await until_shown(pilot, app, "no effect at temperature 0")
        assert screen_text(app).count("no effect") == 1
        app.session.choose_strategy("plain")
        app.screen.query_one("#draft_length", FieldInput).value = "3"
        await until_shown(pilot, app, "no effect: plain decoding drafts nothing")


async def test_strategies_stand_with_the_speed_measured_here() -> None:
    async with answered(STORY, (80, 50)) as (app, pilot):
        account = app.session.ledger.accounts[app.session.loaded.name, "draft"]
        account.tokens, account.milliseconds = 300, 2000.0
        await pilot.press("ctrl+o")
        await until_shown(pilot, app, "150 tok/s")
        (row,) = [row for row in screen_text(app).splitlines() if "tok/s" in row and "● Draft model" in row]
        assert "A small model" in row


async def test_a_refusal_is_read_whole_beside_what_is_typed() -> None:
    app = make_app(FakeEngine(info=replace(INFO, context=20)))
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("word " * 30)
        await until_shown(pilot, app, "too long")
        await pilot.press("enter")
        await until_shown(pilot, app, "the context holds 20; your text is kept. Shorten it")


async def test_the_theme_is_chosen_and_remembered() -> None:
    saved: list[tuple[str, str]] = []
    app = make_app(FakeEngine(), changed(LAUNCH, remember=lambda key, value: saved.append((key, value))))
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        app.screen.query_one("#theme", Choice).value = "paper"
        await pilot.pause()
        assert app.theme == "paper"
        assert saved == [("theme", "paper")]


async def test_another_pair_is_loaded() -> None:
    async with answered(STORY, (120, 36)) as (app, pilot):
        await pilot.press("f3")
        await until_shown(pilot, app, "There is no folder")
        assert isinstance(app.screen, ModelsScreen)
        await pilot.press("down", "enter")
        await until_shown(pilot, app, "Qwen3 8B + 0.6B · draft x5")
        await loaded(app, pilot)
        assert "small fox" in screen_text(app)


async def test_a_pair_that_cannot_run_here_says_why() -> None:
    catalog = replace(CATALOG, pairs=(CATALOG.pairs[0], replace(CATALOG.pairs[1], unsupported="no [GPU] here")))
    app = make_app(FakeEngine(), catalog=catalog)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f3")
        await until_shown(pilot, app, "There is no folder")
        await pilot.press("down")
        await until_shown(pilot, app, "no: no [GPU] here")
        await pilot.press("enter")
        assert "cannot be loaded: no [GPU] here" in status(app)
        assert app.session.loaded.info is not None


async def test_a_load_that_fails_says_why_and_the_pair_before_answers() -> None:
    engine = FakeEngine((STORY,))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        engine.fail_load("model", "no such folder: [/models]\x1b]52;c;x\x07")
        use_pair(app.chat, CATALOG.pairs[1])
        await until_shown(pilot, app, "no such folder: [/models]␛]52;c;x")
        assert "Still using demo." in status(app)
        await loaded(app, pilot)
        await ask(app, pilot, "hi again")
        assert screen_text(app).count("She kept a lamp.") == 2


async def test_a_first_load_that_fails_says_why_and_offers_others() -> None:
    engine = FakeEngine((STORY,))
    engine.fail_load("model", "no such folder: [/models].")
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await until_shown(pilot, app, "no such folder: [/models]")
        app.chat.say("")
        assert "[/models]; F3 shows other models" in status(app)


async def test_escape_gives_up_loading() -> None:
    engine = FakeEngine((STORY,))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        engine.holds_loads = True
        use_pair(app.chat, CATALOG.pairs[1])
        await until_shown(pilot, app, "esc goes back to demo")
        await pilot.press("escape")
        await until_shown(pilot, app, "going back to demo")
        engine.holds_loads = False
        engine.restart()
        await loaded(app, pilot)
        assert app.session.loaded.id == "demo"


async def test_a_dead_engine_costs_one_reply() -> None:
    async with being_answered(LONG, (120, 36), 30, "word20") as (app, pilot, clock):
        app.engine.die()
        await until_shown(pilot, app, "killed by SIGKILL")
        assert "word20" in screen_text(app)
        await loaded(app, pilot)
        await ask(app, pilot, "again", wait=False)
        clock.now = 9999
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.session.last_reply is not None
        assert app.session.last_reply.state == "finished"


async def test_death_while_idle_is_noticed() -> None:
    engine = FakeEngine((STORY,))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        engine.die()
        await wait_until(pilot, lambda: engine.alive)
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        assert "small fox" in screen_text(app)


async def test_a_prompt_too_long_is_said_before_sending_and_kept() -> None:
    engine = FakeEngine(info=replace(INFO, context=30))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("word" + " word" * 39)
        await until_shown(pilot, app, "40 / 30 tokens: too long")
        await pilot.press("enter")
        assert "the context holds 30" in status(app)
        assert app.chat.prompt.text == "word" + " word" * 39
        assert not app.session.conversation.turns
        app.chat.say("")
        app.chat.prompt.load_text("word")
        await until_shown(pilot, app, "1 / 30 tokens, 29 left · enter sends")


async def test_a_prompt_refused_by_the_engine_comes_back() -> None:
    refusal = (Started(0, 9, 0, 0, Speculation()), Failed(0, "context", "The prompt has 99 tokens too many."))
    app = make_app(FakeEngine((refusal,)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "my long prompt")
        assert "The prompt has 99 tokens too many." in status(app)
        assert app.chat.prompt.text == "my long prompt"
        assert "demo" not in screen_text(app).splitlines()[2:20]
        app.chat.say("")
        assert "99 tokens" not in screen_text(app)


async def test_the_token_view_and_back() -> None:
    async with answered(STORY, (120, 36)) as (app, pilot):
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "draft rejected")
        shown = screen_text(app)
        assert "↵" in shown
        assert " or so" in shown
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "╭─ python ─")
        assert "draft rejected" not in screen_text(app)


async def test_prompt_history_is_kept_across_runs(tmp_path: Path) -> None:
    launch = replace(LAUNCH, history=tmp_path / "state" / "prompts.jsonl")
    for run in ("one", "two\nlines"):
        app = make_app(FakeEngine(), launch)
        async with app.run_test() as pilot:
            await loaded(app, pilot)
            await ask(app, pilot, run)
    app = make_app(FakeEngine(), launch)
    async with app.run_test() as pilot:
        await loaded(app, pilot)
        prompt = app.chat.prompt
        await pilot.press(*"new", "up")
        assert prompt.text == "two\nlines"
        await pilot.press("up", "up")
        assert prompt.text == "one"
        await pilot.press("up")
        assert prompt.text == "one"
        await pilot.press("down", "down", "down")
        assert prompt.text == "new"


async def test_a_megabyte_is_pasted_folded_and_sent_whole() -> None:
    engine = FakeEngine(info=replace(INFO, context=10_000_000))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        pasted = ("line \x1b[31m\r\n" * 90_000)[:1_000_000]
        await pilot.press(*"see ")
        app.chat.prompt.post_message(events.Paste(pasted))
        await until_shown(pilot, app, "see [paste 1: ")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        request = next(request for request in engine.requests if isinstance(request, Generate))
        assert request.messages[-1].content.startswith("see line ␛[31m\nline")
        assert len(request.messages[-1].content) > 900_000
        await until_shown(pilot, app, "Hello there.")
        app.chat.prompt.post_message(events.Paste("x" * 5_000_000))
        await until_shown(pilot, app, "over 4,000,000 characters, and no more are taken")
        assert app.chat.prompt.text == ""


async def test_copy_takes_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    natively: list[str] = []
    monkeypatch.setattr("specchat.clipboard.copy", lambda text, _: natively.append(text) or "copied")
    app = make_app(FakeEngine((STORY,)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("alt+c")
        assert "no reply to copy" in status(app)
        await ask(app, pilot, "hi")
        await pilot.press("alt+c")
        await wait_until(pilot, lambda: natively)
        assert app.clipboard == STORY
        assert natively == [STORY]
        await wait_until(pilot, lambda: f"reply by demo of {len(STORY)} characters copied" in status(app))


async def test_the_copy_button_takes_the_code() -> None:
    async with answered(STORY, (120, 36)) as (app, pilot):
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "╭─ python" in row)
        await pilot.click(offset=(rows[y].index("copy"), y))
        await wait_until(pilot, lambda: app.clipboard == "print('lamp')")


@pytest.mark.parametrize(("target", "opened"), [("https://x.y/z", ["https://x.y/z"]), ("ftp://x.y/z", [])])
async def test_only_web_links_open(target: str, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []
    monkeypatch.setattr(SpecchatApp, "open_url", lambda _, url: urls.append(url))
    app = make_app(FakeEngine((f"see [here]({target}) ok",)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "see here" in row)
        for shown in ("enter opens https://x.y/z", "opening https://x.y/z"):
            await pilot.click(offset=(rows[y].index("here"), y))
            await pilot.pause(0.4)
            assert (shown in status(app)) == bool(opened)
            assert urls == (opened if shown.startswith("opening") else [])


async def test_selected_text_is_what_was_written() -> None:
    app = make_app(FakeEngine((" ".join(["word"] * 60) + "\n\n```\nx = 1\n```",)))
    async with app.run_test(size=(80, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        app.chat._select_all_in_widget(app.chat.transcript)
        await pilot.pause()
        selected = app.chat.get_selected_text()
        assert selected is not None
        assert " ".join(["word"] * 60) in selected
        assert "x = 1" in selected
        assert not set("│╭╰") & set(selected)


async def test_the_end_is_followed_until_scrolled_away() -> None:
    engine, clock = slow("\n\n".join(f"word{n}" for n in range(300)))
    app = make_app(engine)
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        transcript = app.chat.transcript
        clock.now = 100
        await until_shown(pilot, app, "word90")
        await pilot.press("pageup", "pageup")
        await wait_until(pilot, lambda: not transcript.following)
        at = transcript.scroll_y
        clock.now = 250
        await wait_until(pilot, lambda: transcript.virtual_size.height > 450)
        assert transcript.scroll_y == at
        await pilot.press("ctrl+end")
        await until_shown(pilot, app, "word240")
        clock.now = 999
        await until_shown(pilot, app, "word299")


async def test_a_long_chat_lays_out_only_its_end() -> None:
    texts = tuple(f"# Reply {n}\n\n" + "\n\n".join(f"paragraph {i} of {n}" for i in range(40)) for n in range(70))
    app = make_app(FakeEngine(texts, info=replace(INFO, context=10**9)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for _ in texts:
            app.session.send("go on")
            app.session.poll()
        app.chat.transcript.show(app.session.conversation)
        app.chat.redraw()
        await pilot.pause()
        transcript = app.chat.transcript
        await until_shown(pilot, app, "paragraph 39 of 69")
        assert 400 <= len(transcript.chat_rows.rows) < 1000
        for _ in range(60):
            transcript.scroll_to(y=0, animate=False)
            await pilot.pause(0.02)
            if "Reply 0" in transcript.text:
                break
            assert transcript.scroll_target_y == transcript.scroll_y
        transcript.scroll_to(y=0, animate=False)
        await until_shown(pilot, app, "paragraph 3 of 0")
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "paragraph")
        assert "# Reply 0" in screen_text(app) or "of 0" in screen_text(app).replace(" or so", "")


async def test_what_is_being_read_stays_in_view() -> None:
    text = "\n\n".join(f"This is paragraph {n} " + "and its words " * 12 for n in range(80))
    async with answered(text, (120, 30)) as (app, pilot):
        transcript = app.chat.transcript
        for _ in range(3):
            await pilot.press("pageup")
        await pilot.pause()
        reading = next(row for row in screen_text(app).split("\n")[2:] if "paragraph" in row)[:22]
        for change in (
            lambda: pilot.resize_terminal(80, 24),
            lambda: pilot.press("ctrl+t"),
            lambda: pilot.press("ctrl+t"),
        ):
            await change()
            await pilot.pause(0.1)
            assert not transcript.following
            shown = "\n".join(screen_text(app).split("\n")[:8]).replace(" or so", "")
            assert reading.split("paragraph ")[1].split()[0] in shown


async def test_every_size_is_drawn() -> None:
    app = make_app(FakeEngine((STORY * 5,)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        for width, height in (
            (80, 24),
            (60, 15),
            (30, 10),
            (200, 60),
            (41, 12),
            (99, 17),
            (100, 12),
            (8, 4),
            (120, 36),
        ):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            if width < 40 or height < 12:
                await wait_until(
                    pilot, lambda w=width: "needs a window" in " ".join(screen_text(app).split()) or w < 20
                )
                continue
            await wait_until(pilot, lambda w=width: drawn(app, w))


def drawn(app: SpecchatApp, width: int) -> bool:
    """Whether a window so wide shows what it should."""
    chat = app.chat
    wide = width >= 105
    return (
        "ask something" in screen_text(app)
        and (bool(chat.query_one(EnginePanel).display), bool(chat.query_one(EngineLine).display)) == (wide, not wide)
        and (not wide or chat.query_one("#column").size.width >= 70)
        and chat.transcript.is_vertical_scroll_end
    )


async def test_a_storm_of_resizes_while_streaming() -> None:
    engine, clock = slow(STORY * 20)
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        for step in range(15):
            clock.now += 40
            await pilot.resize_terminal(20 + step * 37 % 160, 5 + step * 11 % 50)
        await pilot.resize_terminal(120, 36)
        clock.now = 10_000
        await wait_until(pilot, lambda: app.session.reply is None)
        await until_shown(pilot, app, "tok/s ·")


async def test_a_list_without_room_turns_no_page() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        choose_settings(app.chat)
        while not app.screen.query(OptionList):
            await asyncio.sleep(0)
        strategies = app.screen.query_one(OptionList)
        assert not strategies.scrollable_content_region
        strategies.action_page_down()
        strategies.action_page_up()


async def test_the_palette_without_room_turns_no_page() -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("alt+x", "s")
        await pilot.pause(0.1)
        for size in ((3, 1), (100, 30)):
            await pilot.resize_terminal(*size)
            await pilot.press("pagedown", "pageup", "down", "pagedown")
        assert isinstance(app.screen, Palette)


async def test_the_palette_opens_again_while_it_is_still_closing() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        app.action_command_palette()
        await wait_until(pilot, lambda: isinstance(app.screen, Palette))
        app.pop_screen()
        app.action_command_palette()
        app.action_command_palette()
        await pilot.pause()
        assert [type(screen) for screen in app.screen_stack[1:]] == [Palette]


async def test_keys_that_come_together_close_a_dialog_once() -> None:
    async with answered(LONG, (100, 30)) as (app, pilot):
        for dialog in ("choose-message", "what-if", "rename-chat", "models", "search-prompts"):
            app.chat.prompt.clear()
            await app.chat.do(dialog)
            await pilot.pause(0.1)
            assert app.screen is not app.chat, dialog
            for _ in range(3):
                app.post_message(events.Key("enter", "\r"))
            await pilot.pause(0.2)
            assert app.screen is app.chat, dialog


async def test_enters_that_come_together_run_a_slash_command_once() -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        app.chat.prompt.insert("/tokens")
        await pilot.press("escape")
        for _ in range(2):
            app.post_message(events.Key("enter", "\r"))
        await wait_until(pilot, lambda: not app.chat.prompt.text)
        await pilot.pause(0.1)
        assert app.chat.transcript.token_view


async def test_keys_that_come_together_run_a_command_once() -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("alt+x", *"token")
        await until_shown(pilot, app, "Token view")
        await pilot.pause(0.3)
        for _ in range(2):
            app.post_message(events.Key("enter", "\r"))
        await wait_until(pilot, lambda: len(app.screen_stack) == 1)
        await pilot.pause(0.3)
        assert app.chat.transcript.token_view


async def test_help_and_palette_open_and_close() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f1")
        await until_shown(pilot, app, "Start a new line in the prompt.")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "alt+x", *"lookup")
        await until_shown(pilot, app, "Strategy: lookup")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.settings.strategy == "lookup")


async def test_the_palette_reaches_every_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    async with answered(STORY, (120, 40)) as (app, pilot):
        entries = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        assert {"Stop", "Settings", "Token view", "Help", "Models", "New chat", "Regenerate", "Copy reply"} <= set(
            entries
        )
        run: Callable[[], Awaitable[None]] = entries["Export chat"]
        await run()
        await pilot.pause()
        await pilot.press("enter")
        await wait_until(pilot, lambda: (tmp_path / "specchat-1.md").exists())
        assert "small fox" in (tmp_path / "specchat-1.md").read_text()


async def test_no_color_leaves_the_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with answered(STORY, (120, 36)) as (app, pilot):
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "draft rejected")
        segments = [
            segment.style
            for y in range(app.chat.transcript.size.height)
            for segment in app.chat.transcript.render_line(y)
            if segment.style and segment.text.strip()
        ]
        assert app.no_color
        for look in ("underline", "strike", "bold"):
            assert any(getattr(style, look) for style in segments)


async def test_startup_warnings_are_shown() -> None:
    app = make_app(FakeEngine(), changed(LAUNCH, warnings=("theme [x] \x1b[31m is broken",)))
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await loaded(app, pilot)
        await until_shown(pilot, app, "theme [x] ␛[31m is broken")


async def test_a_click_leaves_the_prompt_ready_to_type() -> None:
    async with answered(STORY, (120, 36)) as (app, pilot):
        for widget in ("Transcript", "EnginePanel", "#header", "#status", "Hints"):
            await pilot.click(widget)
            await pilot.press("x")
        assert app.chat.prompt.text == "xxxxx"
        await pilot.press("tab", "j", "tab", "z")
        assert app.chat.prompt.text == "xxxxxz"


async def test_undoing_many_lines_leaves_the_app_alive() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("line\n" * 60)
        await pilot.pause()
        await pilot.press("ctrl+z")
        await pilot.pause()
        assert app.chat.prompt.text == ""
        await pilot.press("alt+c", "x")
        assert app.chat.prompt.text.endswith("x")
