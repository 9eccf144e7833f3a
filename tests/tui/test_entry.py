"""Writing prompts through the keyboard: commands, files, earlier prompts, pastes, personas and presets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH, THEMES, ask, loaded, make_app, screen_text, wait_until
from test_chat import slow, status, until_shown
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen

from specchat.config.personas import Persona
from specchat.config.presets import Preset
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.requests import Generate
from specchat.engine.strategies import STRATEGIES
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tui.pastes import UNFOLD_BELOW
from specchat.tui.screens.history import HistoryScreen
from specchat.tui.screens.settings import SettingsScreen
from specchat.tui.widgets.choice import Choice
from specchat.tui.widgets.completions import Completions
from specchat.tui.widgets.field import FieldInput
from tests.fake import FakeEngine
from tests.parts import changed

NAMED = changed(
    LAUNCH,
    personas=(Persona("short", "Be short."), Persona("big-one", "Be [big].", prefill="So,", pair="big")),
    presets=(Preset("exact", Sampling()), Preset("warm", Sampling(temperature=0.9, min_p=0.1))),
)


@asynccontextmanager
async def running(
    engine: FakeEngine | None = None, launch: Launch = NAMED, size: tuple[int, int] = (120, 36)
) -> AsyncIterator[tuple[SpecchatApp, Pilot[None]]]:
    app = make_app(engine or FakeEngine(), launch)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        yield app, pilot


async def write(app: SpecchatApp, pilot: Pilot[None], text: str, *keys: str) -> None:
    """Type `text`, then press keys, each when the one before was dealt with."""
    app.chat.prompt.insert(text)
    await pilot.pause()
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def choices(app: SpecchatApp) -> list[str]:
    shown = app.chat.query_one(Completions).completion
    return [choice.text for choice in shown.choices] if shown else []


def asked(engine: FakeEngine) -> Generate:
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two text files and one that is none."""
    (tmp_path / "notes.txt").write_text("milk and eggs\n")
    (tmp_path / "my list.md").write_text("bread\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Commands


async def test_a_command_is_completed_chosen_and_run() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/")
        assert {"/help", "/new", "/strategy "} < set(choices(app))
        await write(app, pilot, "strat", "tab")
        assert app.chat.prompt.text == "/strategy "
        assert choices(app) == list(STRATEGIES)
        await pilot.press("up", "up", "enter")
        await pilot.pause()
        assert app.session.settings.strategy == list(STRATEGIES)[-2]
        assert app.chat.prompt.text == ""
        assert not choices(app)
        assert not app.session.conversation.turns


async def test_enter_runs_the_marked_command() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/tok", "enter")
        assert app.chat.transcript.token_view
        assert app.chat.prompt.text == ""


async def test_the_status_row_says_what_enter_does_with_the_list(folder: Path) -> None:
    del folder
    async with running() as (app, pilot):
        await write(app, pilot, "/mod")
        assert status(app).endswith("enter takes it")
        await write(app, pilot, "", "escape")
        assert status(app).endswith("enter runs it")
        app.chat.prompt.clear()
        await write(app, pilot, "see @nts")
        await until_shown(pilot, app, "enter takes it")
        await write(app, pilot, "", "tab")
        await until_shown(pilot, app, "1 file, 14 bytes · ")
        assert status(app).endswith("enter sends")


async def test_escape_closes_the_list_before_it_stops_a_reply() -> None:
    engine, clock = slow()
    async with running(engine) as (app, pilot):
        await ask(app, pilot, "count", wait=False)
        await write(app, pilot, "/he", "escape")
        assert not choices(app)
        assert not app.session.stopping
        await write(app, pilot, "l")
        assert choices(app)
        await pilot.press("escape")
        assert app.session.reply is not None
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert clock.now == 0


async def test_commands_run_while_a_reply_is_written() -> None:
    engine, clock = slow()
    async with running(engine) as (app, pilot):
        await ask(app, pilot, "count", wait=False)
        clock.now = 20
        await until_shown(pilot, app, "word10")
        await write(app, pilot, "/stop", "enter")
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.session.last_reply is not None
        assert app.session.last_reply.outcome == "stopped"


async def test_an_unknown_command_is_kept_and_a_doubled_slash_is_sent() -> None:
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "/setings 5", "enter")
        assert "there is no command /setings (did you mean /settings?)" in status(app)
        assert app.chat.prompt.text == "/setings 5"
        app.chat.prompt.load_text("")
        await ask(app, pilot, "//help me")
        assert asked(engine).messages[-1].content == "/help me"
        await write(app, pilot, "/usr/bin is full", "enter")
        await wait_until(pilot, lambda: asked(engine).messages[-1].content == "/usr/bin is full")


async def test_values_are_set_or_refused_and_given_back() -> None:
    async with running() as (app, pilot):
        for command, words in (
            ("/temperature 0.25", "temperature is 0.25, from the next reply on"),
            ("/seed 7", "seed is 7, from the next reply on"),
            ("/length 3", "draft length is 3, from the next step on"),
            ("/max-tokens 40", "max tokens is 40, from the next reply on"),
            ("/context keep-ends", "context is keep-ends, from the next reply on"),
        ):
            await write(app, pilot, command, "enter")
            assert words in status(app)
            assert app.chat.prompt.text == ""
        settings = app.session.settings
        assert (settings.sampling.temperature, settings.seed, settings.draft_length) == (0.25, 7, 3)
        assert (settings.limits.context, settings.limits.max_tokens) == ("keep-ends", 40)
        await write(app, pilot, "/seed off", "enter")
        assert app.session.settings.seed is None
        assert "seed is new for each reply" in status(app)
        await write(app, pilot, "/strategy plain", "enter")
        await write(app, pilot, "/length 4", "enter")
        assert "draft length is 4, no effect: plain decoding drafts nothing" in status(app)
        for command, words in (
            ("/temperature warm", "/temperature needs a number from 0 to 10"),
            ("/length 99", "/length needs a whole number from 1 to 15"),
            ("/context drop", "needs one of refuse, drop-oldest, keep-ends"),
            ("/persona shrt", "did you mean short?"),
            ("/preset zzz", "there is no preset zzz"),
            ("/model bgi", "did you mean big?"),
            ("/theme inkk", "did you mean ink?"),
            ("/strategy zzz", "there is no strategy zzz"),
            ("/model zzz", "there is no pair zzz; F3 shows all"),
        ):
            await write(app, pilot, command, "escape", "enter")
            assert words in status(app)
            assert app.chat.prompt.text == command
            app.chat.prompt.load_text("")
        assert app.session.settings.sampling.temperature == 0.25


async def test_a_missing_argument_is_asked_for() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/temperature", "enter")
        assert app.chat.prompt.text == "/temperature "
        assert "temperature is 0.7" in status(app)
        await write(app, pilot, "0.1", "enter")
        assert app.session.settings.sampling.temperature == 0.1
        await app.chat.do("theme")
        await pilot.pause()
        assert "paper" in choices(app)
        await write(app, pilot, "pape", "enter")
        assert app.theme == "paper"


async def test_a_command_from_the_palette_leaves_what_is_typed() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "half a prompt")
        await app.chat.do("seed")
        await pilot.pause()
        assert app.chat.prompt.text == "half a prompt"
        assert "seed is new for each reply" in status(app)


async def test_earlier_commands_do_not_open_the_list() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/seed 5", "enter")
        await ask(app, pilot, "hi")
        await pilot.press("up", "up")
        await pilot.pause()
        assert app.chat.prompt.text == "/seed 5"
        assert not choices(app)
        await pilot.press("down")
        assert app.chat.prompt.text == "hi"


async def test_the_list_fits_small_terminals_and_takes_clicks() -> None:
    async with running(size=(40, 12)) as (app, pilot):
        await write(app, pilot, "/")
        shown = app.chat.query_one(Completions)
        assert shown.region.height <= 8
        assert shown.region.y >= 0
        assert shown.region.bottom <= app.chat.query_one("#status").region.y
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "/chats" in row)
        await pilot.click(offset=(5, y))
        await pilot.pause()
        assert app.chat.prompt.text == "/chats"
        assert app.chat.prompt.has_focus


async def test_every_command_is_described_whole_in_80_columns() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await write(app, pilot, "/")
        for action in app.keys.by_slash.values():
            marked = app.chat.query_one(Completions).marked
            assert marked is not None
            shown = screen_text(app)
            assert all(action.help in shown for action in app.keys.by_slash.values() if f"/{action.slash}  " in shown)
            await pilot.press("down")


async def test_the_themes_of_specchat_come_before_those_of_textual() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/theme ")
        own = [theme.name for theme in THEMES]
        assert choices(app)[: len(own)] == own
        assert choices(app)[len(own) :] == sorted(app.available_themes.keys() - set(own))


async def test_the_prompt_stays_where_it_is_below_the_list() -> None:
    async with running() as (app, pilot):
        before = app.chat.query_one("#entry").region
        await write(app, pilot, "/")
        assert choices(app)
        entry, shown = app.chat.query_one("#entry").region, app.chat.query_one(Completions).region
        assert (entry, shown.x, shown.width) == (before, before.x, before.width)


async def test_names_in_the_list_are_never_markup() -> None:
    evil = "[red]x[/] \x1b[2J"
    launch = changed(NAMED, personas=(Persona("evil", evil),))
    async with running(launch=launch) as (app, pilot):
        await write(app, pilot, "/persona ")
        await until_shown(pilot, app, "[red]x[/] ␛[2J")
        await pilot.press("alt+x", *"evil")
        await until_shown(pilot, app, "Persona: evil")


# Files


def counted(app: SpecchatApp) -> int:
    """Tokens of the prompt, 0 while they are not known."""
    found = app.session.prompt_count.counted
    return found.tokens if found else 0


async def test_an_edited_prompt_keeps_a_file_that_is_gone(folder: Path) -> None:
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await ask(app, pilot, "read @notes.txt")
        (folder / "notes.txt").unlink()
        await pilot.press("f5", "!")
        await until_shown(pilot, app, "1 file, 14 bytes · ")
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(app.session.conversation.first) == 2 and app.session.reply is None)
        assert asked(engine).messages[-1].content == "read @notes.txt!\n\nFile notes.txt:\n```txt\nmilk and eggs\n```"


async def test_a_file_is_completed_counted_and_sent(folder: Path) -> None:
    del folder
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "read @nts")
        await wait_until(pilot, lambda: choices(app) == ["@notes.txt "])
        await pilot.press("enter")
        await until_shown(pilot, app, "1 file, 14 bytes · ")
        assert app.chat.prompt.text == "read @notes.txt "
        await wait_until(pilot, lambda: counted(app) > 4)
        alone = counted(app)
        await write(app, pilot, "and @lst")
        await wait_until(pilot, lambda: choices(app) == ['@"my list.md" '])
        await pilot.press("tab")
        await until_shown(pilot, app, "2 files, 20 bytes · ")
        await wait_until(pilot, lambda: counted(app) > alone)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        content = asked(engine).messages[-1].content
        assert content.startswith('read @notes.txt and @"my list.md" ')
        assert "milk and eggs" in content
        assert "bread" in content
        (turn,) = app.session.conversation.turns
        assert [attachment.name for attachment in turn.attachments] == ["notes.txt", "my list.md"]
        assert turn.prompt == 'read @notes.txt and @"my list.md" '


async def test_a_folder_that_is_written_whole_is_sent(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "src" / "b.py").write_text("b = 2\n")
    async with running() as (app, pilot):
        await write(app, pilot, "@src/")
        await wait_until(pilot, lambda: choices(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns)
        (turn,) = app.session.conversation.turns
        assert (turn.prompt, [one.name for one in turn.attachments]) == ("@src/", ["src/a.py", "src/b.py"])
        await write(app, pilot, "@src/")
        await wait_until(pilot, lambda: choices(app))
        await pilot.press("down", "enter")
        assert app.chat.prompt.text == "@src/a.py "


async def test_secrets_of_a_folder_are_told_and_stay(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "a.py").write_text("a = 1\n")
    (folder / "src" / ".env").write_text("TOKEN=xyzzy")
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "read @src/ now")
        await until_shown(pilot, app, "1 file, 6 bytes, 1 secret left out · ")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        assert "xyzzy" not in asked(engine).messages[-1].content


async def test_what_is_no_text_is_refused_and_what_is_no_file_is_text(folder: Path) -> None:
    del folder
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "what is @image.png here", "enter")
        await wait_until(pilot, lambda: "image.png: images of this kind cannot be attached" in status(app))
        assert app.chat.prompt.text == "what is @image.png here"
        assert not app.session.conversation.turns
        app.chat.prompt.load_text("")
        await ask(app, pilot, "ask @nobody of a@b.c ")
        assert asked(engine).messages[-1].content == "ask @nobody of a@b.c "
        assert "no file" not in status(app)
        await ask(app, pilot, "read @note.txt")
        assert "there is no file note.txt: its name goes as text" in status(app)


async def test_of_a_long_file_passages_go_along(folder: Path) -> None:
    (folder / "long.txt").write_text("a word of no use\n" * 600 + "the fox sleeps here\n")
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "where is the fox of @long.txt now")
        await until_shown(pilot, app, "1 by passages that fit")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        content = asked(engine).messages[-1].content
        assert "the fox sleeps here" in content
        assert len(content) < 3 * 1024 // 2 + 100


async def test_files_that_make_a_prompt_too_long_are_said_before_sending(folder: Path) -> None:
    (folder / "long.txt").write_text("." * 1400)
    async with running() as (app, pilot):
        await write(app, pilot, "read @long.txt now")
        await until_shown(pilot, app, "too long")
        assert "1 file, 1 kB" in status(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "the context holds 1,024" in status(app))
        assert app.chat.prompt.text == "read @long.txt now"


async def test_a_dropped_file_becomes_a_mention(folder: Path) -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "see")
        app.chat.prompt.post_message(events.Paste(f"'{folder}/my list.md'"))
        await wait_until(pilot, lambda: app.chat.prompt.text == 'see @"my list.md" ')
        app.chat.prompt.post_message(events.Paste("and/or"))
        await wait_until(pilot, lambda: app.chat.prompt.text == 'see @"my list.md" and/or')


async def test_files_named_in_a_folded_paste_stay_text(folder: Path) -> None:
    del folder
    async with running() as (app, pilot):
        app.chat.prompt.post_message(events.Paste("@notes.txt\n" * 70))
        await wait_until(pilot, lambda: "[paste 1" in app.chat.prompt.text)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns)
        assert app.session.conversation.turns[0].attachments == ()


async def test_typing_never_waits_for_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    del folder
    go = threading.Event()
    monkeypatch.setattr("specchat.tui.composing.files.list_files", lambda *_: go.wait(60) and None)
    async with running() as (app, _):
        try:
            for character in "@note":  # `press` would wait for the thread
                app.post_message(events.Key("at" if character == "@" else character, character))
            async with asyncio.timeout(30):
                while app.chat.prompt.text != "@note":
                    await asyncio.sleep(0.01)
        finally:
            go.set()


# Earlier prompts


async def test_earlier_prompts_are_searched(tmp_path: Path) -> None:
    launch = replace(NAMED, history=tmp_path / "prompts.jsonl")
    async with running(launch=launch) as (app, pilot):
        for text in ("tell me of foxes", "a [lamp] and\nan owl", "owls and foxes", "tell me of foxes"):
            await ask(app, pilot, text)
        await write(app, pilot, "half", "ctrl+s")
        await wait_until(pilot, lambda: isinstance(app.screen, HistoryScreen))
        await until_shown(pilot, app, "3 prompts")
        assert "a [lamp] and an owl" in screen_text(app)
        await pilot.press(*"FOX")
        await until_shown(pilot, app, "2 prompts")
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.chat.prompt.text == "owls and foxes"
        await pilot.press("down", "down")
        assert app.chat.prompt.text == "half"
        await pilot.press("ctrl+s", *"zzz", "enter", "escape")
        await pilot.pause()
        assert app.chat.prompt.text == "half"


@pytest.mark.timed
async def test_history_search_is_instantaneous() -> None:
    from time import thread_time

    from specchat.tui.history import PromptHistory

    history = PromptHistory()
    for n in range(500):
        history.add(f"prompt {n} " + "some words " * 1000)
    begin = thread_time()
    for query in ("p", "prompt 3", "WORDS 499", "nothing like it"):
        found = history.search(query, 100)
    assert found == []
    assert len(history.search("PROMPT 49", 100)) == 15
    assert thread_time() - begin < 1


# Pastes


async def test_a_paste_is_unfolded_at_the_cursor() -> None:
    async with running() as (app, pilot):
        text = "line\n" * 80 + "end"
        app.chat.prompt.post_message(events.Paste(text))
        await wait_until(pilot, lambda: app.chat.prompt.text == "[paste 1: 403 characters, 81 lines]")
        await pilot.press("ctrl+g")
        assert app.chat.prompt.text == text
        await pilot.press("ctrl+g")
        assert "no folded paste" in status(app)
        app.chat.prompt.load_text("")
        app.chat.prompt.post_message(events.Paste("x" * (UNFOLD_BELOW + 1)))
        await wait_until(pilot, lambda: "[paste 2" in app.chat.prompt.text)
        await pilot.press("ctrl+g")
        assert "at most 100,000 can be edited" in status(app)


# Personas, presets and prefills


async def test_a_persona_is_chosen_shown_and_sent() -> None:
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "/persona sh", "enter")
        await until_shown(pilot, app, "demo · short · draft x5")
        await ask(app, pilot, "hi")
        assert [message.content for message in asked(engine).messages] == ["Be short.", "hi"]
        await write(app, pilot, "/system Be mine.", "enter")
        await until_shown(pilot, app, "demo · own system prompt · draft x5")
        await write(app, pilot, "/system", "enter")
        assert app.chat.prompt.text == "/system Be mine."
        app.chat.prompt.load_text("")
        await write(app, pilot, "/persona none", "enter")
        await until_shown(pilot, app, "demo · draft x5")
        assert app.session.conversation.system == ""


async def test_a_persona_brings_its_pair_and_prefill() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/persona big-one", "enter")
        await wait_until(pilot, lambda: app.session.loaded.info is not None and app.session.loaded.info.id == "big")
        assert app.session.loaded.pair is CATALOG.pairs[1]
        app.chat.say("")
        assert "the reply will begin with: So," in status(app)
        await ask(app, pilot, "hi")
        assert app.session.last_reply is not None
        assert app.session.last_reply.start.prefill == "So,"
        assert app.session.next_prefill == "So,"


async def test_a_prefill_is_used_once() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/prefill Well, [then]", "enter")
        assert "the reply will begin with: Well, [then]" in status(app)
        await ask(app, pilot, "hi")
        assert app.session.last_reply is not None
        assert app.session.last_reply.start.prefill == "Well, [then]"
        assert "will begin" not in status(app)
        await ask(app, pilot, "again")
        assert app.session.last_reply.start.prefill == ""
        await write(app, pilot, "/prefill x", "enter")
        await write(app, pilot, "/prefill off", "enter")
        assert app.session.next_prefill == ""


async def test_presets_set_the_sampling_and_the_settings_show_them() -> None:
    async with running() as (app, pilot):
        await write(app, pilot, "/preset warm", "enter")
        assert app.session.settings.sampling == Sampling(temperature=0.9, min_p=0.1)
        await pilot.press("ctrl+o")
        await wait_until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        preset = app.screen.query_one("#preset", Choice)
        assert preset.value == "warm"
        preset.value = "exact"
        await pilot.pause()
        assert app.session.settings.sampling == Sampling()
        temperature = app.screen.query_one("#temperature", FieldInput)
        assert temperature.value == "0"
        await pilot.press(*"0.4", "enter")
        assert preset.value == "own"
        assert app.session.settings.sampling.temperature == 0.4
        assert {"Preset: warm", "Persona: short"} <= {command.title for command in app.get_system_commands(app.chat)}


async def test_what_is_typed_before_the_first_frame_is_done_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first_screen = SpecchatApp.get_default_screen

    def typed_meanwhile(self: SpecchatApp) -> Screen[None]:
        for key, letter in (("h", "h"), ("i", "i"), ("enter", None), ("ctrl+b", None)):
            self.post_message(events.Key(key, letter))
        return first_screen(self)

    monkeypatch.setattr(SpecchatApp, "get_default_screen", typed_meanwhile)
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: [turn.prompt for turn in app.session.conversation.turns] == ["hi"])
        await wait_until(pilot, lambda: app.chat.lists_chats)
        assert app.chat.prompt.text == ""
