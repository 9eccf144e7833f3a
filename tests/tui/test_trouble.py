"""The app when its chats cannot be saved: it says so, chats go on, and the file stays as it was."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from conftest import LAUNCH, ROOT, ask, loaded, make_app, wait_until
from hostile import output

from measure.terminal import Terminal
from specchat.chat import writer
from specchat.chat.rows import ChatRow
from specchat.chat.store import Store
from tests.disk import room
from tests.fake import FakeEngine

SAID = "there was a fox"
"""What the scripted session answers."""
LOCK_S = "0.2"
"""Seconds that the app waits for a lock where one is to be told; otherwise it waits as for a user."""
Start = Callable[..., Terminal]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where the app keeps its chats, with one chat in it."""
    path = tmp_path / "data" / "chats.db"
    path.parent.mkdir()
    store = Store(path)
    _, saved = store.insert(ChatRow("before", title="saved before"), [], {})
    assert saved.wait(60)
    store.close()
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command in a terminal, over a scripted engine process."""
    with ExitStack() as running:

        def begin(**more: str) -> Terminal:
            environment = {"SPECCHAT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)} | more
            terminal = Terminal(["-m", "tests.cli.scripted_specchat"], environment)
            running.callback(end, terminal)
            terminal.wait("ask something", keep=True)
            return terminal

        yield begin


def end(terminal: Terminal) -> None:
    if terminal.pid:
        os.kill(terminal.pid, signal.SIGKILL)
        terminal.close()


def send(terminal: Terminal, word: str, *, at_once: bool = False) -> None:
    """Send a prompt of one word, and wait for the answer; `at_once` where no reply can be running.

    What the app tells covers its hints for seconds.
    """
    terminal.type(word)
    terminal.wait(word, keep=True)
    if not at_once:
        terminal.wait("enter send")
    terminal.type("\r")
    terminal.wait(SAID)


def leave(terminal: Terminal) -> str:
    """Quit; gives what was written at the end."""
    terminal.type("\x11")
    while terminal.read(5.0):
        pass
    os.waitpid(terminal.pid, 0)
    os.close(terminal.fd)
    terminal.pid = 0
    return terminal.text()


def prompts(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [text for (text,) in db.execute("SELECT text FROM message WHERE role = 'user' ORDER BY id")]


def saved(terminal: Terminal, path: Path, count: int) -> list[str]:
    """The prompts, as soon as there are `count` of them."""
    last = monotonic() + 60
    while len(prompts(path)) < count and monotonic() < last:
        terminal.read(0.25)
    return prompts(path)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "word"),  # one, as lines break where the path is long
    [(newer, "newer"), (folder, "opened")],
)
def test_a_database_that_cannot_be_used_is_told_and_left_alone(
    database: Path, start: Start, spoil: Callable[[Path], None], word: str
) -> None:
    spoil(database)
    before = database.read_bytes() if database.is_file() else None
    terminal = start()
    terminal.wait(word)
    send(terminal, "hello", at_once=True)
    leave(terminal)
    assert (database.read_bytes() if database.is_file() else None) == before
    assert sorted(path.name for path in database.parent.iterdir() if path.name.startswith("chats")) == ["chats.db"]


def test_a_database_locked_at_the_start_is_told_and_left_alone(database: Path, start: Start) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        terminal = start(SCRIPTED_LOCK_S=LOCK_S)
        terminal.wait("locked")
        send(terminal, "hello", at_once=True)
        other.execute("ROLLBACK")
    leave(terminal)
    assert prompts(database) == []


def test_a_lock_during_the_chat_is_told_until_it_is_gone(database: Path, start: Start) -> None:
    terminal = start(SCRIPTED_LOCK_S=LOCK_S)
    send(terminal, "first")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        send(terminal, "second")
        terminal.wait("locked")
        assert prompts(database) == ["first"]
        other.execute("ROLLBACK")
    terminal.seen = b""
    assert saved(terminal, database, 2) == ["first", "second"]
    assert "could not be saved" not in leave(terminal)


def test_what_could_not_be_saved_is_told_at_the_end(database: Path, start: Start) -> None:
    terminal = start(SCRIPTED_LOCK_S=LOCK_S)
    send(terminal, "first")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        send(terminal, "second")
        assert "Some messages could not be saved." in leave(terminal)
        other.execute("ROLLBACK")
    assert prompts(database) == ["first"]


def test_two_at_once_keep_each_others_chats(database: Path, start: Start) -> None:
    one, two = start(), start()
    for number, terminal in enumerate((one, two, one, two)):
        send(terminal, f"prompt{number}")
    two.type("\x02")
    two.wait("rompt0", keep=True)
    two.wait("/ search")  # the list has the focus
    two.type("\x1b")
    two.wait("tok/s", keep=True)  # the gauges are back; an escape that comes with a letter is alt
    send(one, "after")
    assert sorted(saved(one, database, 5)) == ["after", "prompt0", "prompt1", "prompt2", "prompt3"]
    leave(one)
    send(two, "last")
    leave(two)
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store = Store(database)
    chats = [store.load(entry.key)[0] for entry in store.chats()]
    assert sorted([turn.prompt for turn in chat.turns] for chat in chats) == [
        [],
        ["prompt0", "prompt2", "after"],
        ["prompt1", "prompt3", "last"],
    ]
    store.close()


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store on a disk that can be made full and given room again by its `max_page_count`."""
    monkeypatch.setattr(writer, "RETRY_S", 0.05)
    store = Store(tmp_path / "chats.db")
    yield store
    assert store.close()


async def test_a_full_disk_is_told_until_there_is_room(full: Store) -> None:
    app = make_app(FakeEngine(("One.",)), replace(LAUNCH, store=full))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "before")
        room(full, 0)
        await ask(app, pilot, "x" * 100_000)
        await wait_until(pilot, lambda: "is full" in output(app))
        await ask(app, pilot, "after")
        last = app.session.last_reply
        assert last is not None
        assert last.text == "One."
        room(full, 10_000)
        key = app.session.conversation.key
        await wait_until(pilot, lambda: len(full.load(key)[0].turns) == 3)
        app.chat.say("")
        await wait_until(pilot, lambda: "is full" not in output(app))


async def test_trouble_while_nobody_types_is_told_and_taken_back(full: Store) -> None:
    app = make_app(FakeEngine(), replace(LAUNCH, store=full))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "before")
        room(full, 0)
        full._writer.put(lambda db: db.execute("CREATE TABLE big (x)") and None)
        await wait_until(pilot, lambda: "is full" in output(app))
        room(full, 100)
        await wait_until(pilot, lambda: "is full" not in output(app))
