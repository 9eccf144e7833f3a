"""Tools in the window: asked for before each call, shown folded, turned on and off by server."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conftest import LAUNCH, ask, flush, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.chat.store import Store
from specchat.engine.protocol.options import Written
from specchat.mcp_tools.link import CallOutcome
from specchat.mcp_tools.servers import ToolServers
from specchat.tui.actions import reading
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.help import HelpScreen
from specchat.tui.screens.messages import MessagesScreen
from specchat.tui.screens.permission import PermissionScreen
from specchat.tui.screens.tools import ToolsScreen
from specchat.tui.widgets.plain import FactRows
from tests.fake import FakeEngine
from tests.parts import changed
from tests.service.tool_servers import READ, ScriptedServers, calling

ASKS = calling(("read", '{"path": "notes.txt"}'), text="Let me see.")
HOSTILE = "[red]x[/] \x1b]52;c;aGk=\x07 [/nothing] \u202eabc"
SIZES = ((120, 36), (60, 15))


@asynccontextmanager
async def chatting(
    *replies: str | Written,
    servers: ToolServers | None = None,
    size: tuple[int, int] = (120, 36),
    store: Store | None = None,
    on: bool = True,
) -> AsyncIterator[tuple[SpecchatApp, Pilot[None]]]:
    """The app with tools on in its chats."""
    launch = changed(LAUNCH, servers=servers or ScriptedServers(), uses_tools=on, store=store or LAUNCH.store)
    app = make_app(FakeEngine(replies or ("Hello there.",)), launch)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        yield app, pilot


async def asked(app: SpecchatApp, pilot: Pilot[None]) -> PermissionScreen:
    """The dialog that asks for a call, once it is there."""
    await wait_until(pilot, lambda: isinstance(app.screen, PermissionScreen))
    await pilot.pause()
    assert isinstance(app.screen, PermissionScreen)
    return app.screen


async def send(app: SpecchatApp, pilot: Pilot[None], text: str = "hi") -> None:
    """Send a prompt whose reply calls a tool."""
    await ask(app, pilot, text, wait=False)
    await asked(app, pilot)


async def done(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await wait_until(pilot, lambda: not app.session.at_work and app.screen is app.chat)


@pytest.mark.parametrize("size", SIZES)
async def test_a_call_is_shown_and_asked_for_then_its_result_is_a_folded_line(size: tuple[int, int]) -> None:
    servers = ScriptedServers(answers="first line\nlast line")
    async with chatting(ASKS, "It is short.", servers=servers, size=size) as (app, pilot):
        await send(app, pilot, "what is in my notes?")
        shown = screen_text(app)
        assert "call a tool?" in shown
        assert "read  of files" in shown
        assert "path: notes.txt" in shown
        answers = (
            ("no, and the model is told so", "esc"),
            ("once", "alt+y"),
            ("always for this tool in this chat", "alt+a"),
        )
        rows = [next(row for row in shown.split("\n") if f"{words}  " in row and key in row) for words, key in answers]
        assert len({row.index(key) for row, (_, key) in zip(rows, answers, strict=True)}) == 1
        assert servers.made == []
        await pilot.press("alt+y")
        await done(app, pilot)
        assert servers.made == [("read", {"path": "notes.txt"})]
        shown = screen_text(app)
        assert "▸ read  path: notes.txt · ok · 0.25 s" in shown
        assert "It is short." in shown
        assert "first line" not in shown
        await app.chat.do("read")
        transcript = app.chat.transcript
        await wait_until(pilot, lambda: transcript.has_focus)
        while not transcript.on_fold:
            await pilot.press("k")
        await pilot.press("enter")
        await pilot.pause()
        shown = screen_text(app)
        for words in ("▾ read", "▎ path: notes.txt", "from files:", "▎ first line", "▎ last line"):
            assert words in shown
        await pilot.press("z")
        await pilot.pause()
        assert "first line" not in screen_text(app)


async def test_escape_says_no_and_a_stray_enter_nothing() -> None:
    servers = ScriptedServers()
    async with chatting(ASKS, "As you like.", servers=servers) as (app, pilot):
        await send(app, pilot)
        await pilot.press("enter", "y", "n", "space", "a")
        await pilot.pause()
        assert isinstance(app.screen, PermissionScreen)
        await pilot.press("escape")
        await done(app, pilot)
        assert servers.made == []
        assert "▸ read  path: notes.txt · declined" in screen_text(app)
        assert "As you like." in screen_text(app)


@pytest.mark.parametrize(("downs", "calls"), [(1, 0), (2, 1), (3, 2)])
async def test_the_choices_are_taken_with_enter(downs: int, calls: int) -> None:
    """The first is no, the second once: a second call is asked for; the third always: it is not."""
    servers = ScriptedServers()
    async with chatting(ASKS, ASKS, "Good.", servers=servers) as (app, pilot):
        await send(app, pilot)
        await pilot.press(*["down"] * downs, "enter")
        if calls < 2:
            await wait_until(pilot, lambda: len(app.session.conversation.turns) == 2 and app.session.calling)
            await asked(app, pilot)
            await pilot.press("escape")
        await done(app, pilot)
        assert len(servers.made) == calls


async def test_moved_keys_answer_and_are_shown() -> None:
    servers = ScriptedServers()
    launch = changed(LAUNCH, servers=servers, uses_tools=True, keymap={"call-once": "y", "call-always": ""})
    app = make_app(FakeEngine((ASKS, "Good.")), launch)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await send(app, pilot)
        assert f"{'once':<33}  y" in screen_text(app)
        await pilot.press("alt+a", "y")
        await done(app, pilot)
        assert len(servers.made) == 1


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("size", SIZES)
async def test_hostile_words_are_text(size: tuple[int, int]) -> None:
    call = calling(("read", json.dumps({HOSTILE: HOSTILE, "long": f"{HOSTILE}\n" * 200})))
    async with chatting(call, "ok", servers=ScriptedServers(answers=HOSTILE * 99), size=size) as (app, pilot):
        await send(app, pilot)
        shown = screen_text(app)
        assert "[red]x[/]" in shown
        assert not set(shown) & {"\x1b", "\x07", "\u202e"}
        assert "alt+y" in shown
        await pilot.press("tab", "pagedown", "pagedown")
        await pilot.press("alt+y")
        await done(app, pilot)
        await app.chat.do("read")
        await wait_until(pilot, lambda: app.chat.transcript.has_focus)
        while not app.chat.transcript.on_fold:
            await pilot.press("k")
        await pilot.press("enter")
        await pilot.pause()
        assert not set(screen_text(app)) & {"\x1b", "\x07", "\u202e"}


async def test_what_is_asked_comes_when_another_dialog_is_closed() -> None:
    async with chatting(ASKS, "Good.") as (app, pilot):
        app.session.tools.servers._starts = False  # type: ignore[attr-defined]
        await ask(app, pilot, "hi", wait=False)
        await app.chat.do("help")
        await wait_until(pilot, lambda: isinstance(app.screen, HelpScreen))
        for name in ("files", "web"):
            app.session.tools.servers.come_up(name)  # type: ignore[attr-defined]
        await wait_until(pilot, lambda: app.session.calling is not None)
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await asked(app, pilot)
        await pilot.press("alt+y")
        await done(app, pilot)


async def test_what_is_asked_in_a_chat_comes_when_it_is_opened_again() -> None:
    servers = ScriptedServers(starts=False)
    async with chatting(ASKS, "Good.", servers=servers) as (app, pilot):
        await ask(app, pilot, "hi", wait=False)
        await wait_until(pilot, lambda: "waiting for the servers of the tools" in screen_text(app))
        key = app.session.conversation.key
        app.chat.chats.new()
        servers.come_up("files")
        servers.come_up("web")
        await wait_until(pilot, lambda: app.session.calls.of(key) is not None)
        await pilot.pause()
        assert app.screen is app.chat
        app.chat.chats.open(key)
        await asked(app, pilot)
        await pilot.press("alt+y")
        await done(app, pilot)
        assert "Good." in screen_text(app)


async def test_a_call_is_stopped_and_what_waits_goes_back() -> None:
    servers = ScriptedServers(answers=None)
    async with chatting(ASKS, "Good.", servers=servers) as (app, pilot):
        await send(app, pilot)
        await pilot.press("alt+y")
        await wait_until(pilot, lambda: servers.waiting)
        await wait_until(pilot, lambda: "calling read; esc stops" in screen_text(app))
        assert app.session.calling is not None
        app.session.calling.pending[0].began -= 75
        await wait_until(pilot, lambda: re.search(r"calling read, 7\d s; esc stops", screen_text(app)) is not None)
        app.chat.prompt.insert("and then")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.waiting)
        await pilot.press("escape")
        await done(app, pilot)
        assert servers.waiting[0].cancelled()
        assert app.chat.prompt.text == "and then"
        shown = screen_text(app)
        assert "▸ read  path: notes.txt · failed" in shown
        assert "stopped" in shown
        await app.chat.do("continue")
        await done(app, pilot)
        assert "Good." in screen_text(app)


async def test_a_prompt_waits_until_calls_are_answered() -> None:
    servers = ScriptedServers(answers=None)
    async with chatting(ASKS, "First.", "Second.", servers=servers) as (app, pilot):
        await send(app, pilot)
        await pilot.press("alt+y")
        await wait_until(pilot, lambda: servers.waiting)
        app.chat.prompt.insert("and then")
        await pilot.press("enter")
        servers.waiting[0].set_result(CallOutcome(True, "text"))
        await wait_until(pilot, lambda: len(app.session.conversation.turns) == 3 and not app.session.at_work)
        assert [turn.reply.text for turn in app.session.conversation.turns if turn.reply] == [
            "Let me see.", "First.", "Second.",
        ]  # fmt: skip


async def test_a_chat_with_calls_is_opened_again_read_and_edited(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    servers = ScriptedServers(answers="text")
    async with chatting(ASKS, "It is short.", servers=servers, store=store) as (app, pilot):
        await send(app, pilot, "what is in it?")
        await pilot.press("alt+y")
        await done(app, pilot)
        key = app.session.conversation.key
        app.chat.chats.new()
        flush(store)
        app.chat.chats.open(key)
        await pilot.pause()
        shown = screen_text(app)
        assert "▸ read  path: notes.txt · ok · 0.25 s" in shown
        assert "It is short." in shown
        assert app.chat.transcript.text.count("hi") == 0
        await app.chat.do("token-view")
        await pilot.pause()
        shown = screen_text(app)
        assert "▸ read  path: notes.txt · ok" in shown
        assert '<tool_call>read {"path": "notes.txt"}</tool_call>' in shown
        await app.chat.do("token-view")
        await app.chat.do("jump-to-message")
        await wait_until(pilot, lambda: isinstance(app.screen, MessagesScreen))
        options = app.screen.query_one(OptionList)
        assert options.option_count == 3
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is app.chat)
        await app.chat.do("edit")
        assert app.chat.prompt.text == "what is in it?"
        await pilot.press("escape")
        await app.chat.do("read")
        for _ in range(6):
            await pilot.press("[")
        for _ in range(6):
            await pilot.press("]")
        await pilot.press("escape")


async def test_a_call_is_opened_whole_in_the_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, str]] = []
    monkeypatch.setattr(reading, "edit_text", lambda _, text, suffix: opened.append((text, suffix)))
    async with chatting(ASKS, "It is long.", servers=ScriptedServers(answers="word " * 5_000)) as (app, pilot):
        await send(app, pilot)
        await pilot.press("alt+y")
        await done(app, pilot)
        await app.chat.do("read")
        while not app.chat.transcript.on_fold:
            await pilot.press("k")
        await pilot.press("o")
        await wait_until(pilot, lambda: opened)
        assert opened == [("read\npath: notes.txt\n\n" + "word " * 5_000, ".txt")]
        await pilot.press("enter")
        await pilot.pause()
        rows = [line.content.plain for line, _ in app.chat.transcript.chat_rows.rows]
        assert "▎ … and 21,000 more characters" in rows


async def test_other_versions_of_a_reply_have_their_own_calls() -> None:
    async with chatting(ASKS, "One.", "Other.") as (app, pilot):
        await send(app, pilot)
        await pilot.press("alt+y")
        await done(app, pilot)
        turn = app.session.conversation.turns[0]
        app.session.regenerate(turn)
        await done(app, pilot)
        assert "▸ read" not in screen_text(app)
        assert "Other." in screen_text(app)
        await app.chat.do("previous-version")
        await pilot.pause()
        assert "▸ read" in screen_text(app)
        assert "One." in screen_text(app)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("size", SIZES)
async def test_servers_are_listed_and_turned_on_and_off(size: tuple[int, int]) -> None:
    servers = ScriptedServers(starts=False)
    async with chatting("Hello.", servers=servers, size=size, on=False) as (app, pilot):
        await app.chat.do("tools")
        await wait_until(pilot, lambda: isinstance(app.screen, ToolsScreen) and "tools are off" in screen_text(app))
        shown = screen_text(app)
        for words in ("[x] files", "[x] web", "not started", "Every", "enter turns it on or off"):
            assert words in shown
        assert servers.started == []
        await pilot.press("down", "down", "enter")
        await wait_until(pilot, lambda: "[ ] web" in screen_text(app))
        assert servers.started == []
        await pilot.press("up", "up", "enter")
        await wait_until(pilot, lambda: "tools are on" in screen_text(app))
        assert servers.started == ["files"]
        assert "starting" in screen_text(app)
        servers.come_up("files", problem="It ended by itself: no \x1bdatabase")
        await wait_until(pilot, lambda: "does not run" in screen_text(app))
        await pilot.press("down")
        await wait_until(pilot, lambda: "no ␛database" in screen_text(app))
        assert "serve-files --all" in screen_text(app)
        servers.come_up("files")
        await wait_until(pilot, lambda: "2 tools" in screen_text(app))
        await wait_until(pilot, lambda: READ.description in screen_text(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is app.chat)
        if size[0] > 60:
            assert "tools on" in screen_text(app)
        app.session.use_tools(False)
        assert servers.stopped[-1] == "files"


async def test_without_servers_the_dialog_says_where_they_are_named(tmp_path: Path) -> None:
    launch = changed(LAUNCH, servers=ToolServers(()), tools_file=tmp_path / "mcp.json")
    app = make_app(FakeEngine(), launch)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await app.chat.do("tools")
        await wait_until(pilot, lambda: "There are no servers yet" in screen_text(app))
        assert "mcp.json" in screen_text(app)


async def test_the_file_is_read_again_with_the_dialog(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    app = make_app(FakeEngine(), changed(LAUNCH, servers=ToolServers(()), tools_file=file))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        file.write_text('{"mcpServers": {"added": {"command": "/no/such/program"}}}')
        await app.chat.do("tools")
        await wait_until(pilot, lambda: "[x] added" in screen_text(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is app.chat)
        file.write_text("{")
        await app.chat.do("tools")
        await wait_until(pilot, lambda: isinstance(app.screen, ToolsScreen) and app.screen.query(FactRows))
        said = app.screen.query_one(FactRows)
        await wait_until(pilot, lambda: "is not valid JSON" in " ".join(str(said.render()).split()))
        assert "[x] added" in screen_text(app)


async def test_the_command_takes_on_and_off() -> None:
    async with chatting(on=False) as (app, pilot):
        for typed, on in (("/tools on", True), ("/tools off", False)):
            app.chat.prompt.insert(typed)
            await pilot.press("escape", "enter")
            await wait_until(pilot, lambda on=on: app.session.tools.of(app.session.conversation.key).on is on)
        app.chat.prompt.insert("/tools maybe")
        await pilot.press("escape", "enter")
        await wait_until(pilot, lambda: "/tools takes on or off" in screen_text(app))


async def test_leaving_ends_the_servers() -> None:
    servers = ScriptedServers()
    async with chatting(servers=servers):
        assert not servers.closed
    assert servers.closed
