"""What is saved comes back, whatever happens to the file."""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest

from specchat.chat import connection, schema, writer
from specchat.chat.rows import INTERRUPTED
from specchat.chat.saving import Saving
from specchat.chat.schema import StoreError
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Turn
from specchat.engine.protocol.events import Failed
from tests.disk import room

from .conftest import a_chat, answer, flush, save

SAVED_SOON = Store._saved_soon
"""As for a user: tests wait until it is known."""


def shape(chat: Conversation) -> list[object]:
    """Everything of a chat that must survive."""

    def of(turn: Turn) -> list[object]:
        replies = [
            (
                r.key,
                r.raw,
                r.state,
                r.end.reason,
                r.end.stats,
                r.sampling,
                list(r.marks),
                r.steps,
                r.offsets,
                *map(of, r.turns),
            )
            for r in turn.replies
        ]
        return [turn.key, turn.prompt, turn.attachments, turn.created, replies]

    return [chat.key, chat.system, chat.title, [of(turn) for turn in chat.first]]


def same_steps(one: Conversation, other: Conversation) -> bool:
    """`shape` with the ids that the engine gave, which are not kept, taken out."""
    return str(shape(one)).replace("id=1", "id=0") == str(shape(other)).replace("id=1", "id=0")


def test_a_chat_comes_back_whole(store: Store) -> None:
    chat = a_chat()
    save(store, chat)
    loaded, row = store.load(chat.key)
    assert same_steps(loaded, chat)
    assert row.view["pair"] == "demo"
    assert [turn.prompt for turn in loaded.turns] == ["Tell me about a fox", "And a lamp?"]
    assert loaded.turns[1].reply is not None
    assert loaded.turns[1].reply.text == "Lamps are for the night."


def test_it_comes_back_in_another_process_run(tmp_path: Path) -> None:
    chat = a_chat()
    first = Store(tmp_path / "chats.db")
    save(first, chat)
    assert first.close()
    second = Store(tmp_path / "chats.db")
    assert same_steps(second.load(chat.key)[0], chat)
    assert oct((tmp_path / "chats.db").stat().st_mode & 0o777) == "0o600"
    second.close()


def test_a_reply_being_written_is_there_as_interrupted(store: Store) -> None:
    chat = Conversation()
    turn = chat.ask("hi")
    assert store.add_turn(chat, turn, {})
    reply = answer(chat, turn, "half of the", ended=False)
    store.save_reply(chat, reply)
    flush(store)
    loaded = store.load(chat.key)[0].turns[0].reply
    assert loaded is not None
    assert (loaded.text, loaded.state, loaded.end.error) == ("half of the", "failed", INTERRUPTED)
    reply.failed(Failed(1, "memory", "out of memory"))
    store.save_reply(chat, reply)
    flush(store)
    loaded = store.load(chat.key)[0].turns[0].reply
    assert loaded is not None
    assert loaded.end.error == "out of memory"
    assert [hit.message for hit in store.search("half")] == [reply.key]


def test_the_list_of_chats(store: Store) -> None:
    chats = [a_chat() for _ in range(3)]
    for chat in chats:
        save(store, chat)
    store.pin(chats[0].key, True)
    store.rename(chats[1].key, "Foxes [and] lamps")
    flush(store)
    assert [entry.key for entry in store.chats()] == [chats[0].key, chats[2].key, chats[1].key]
    assert store.chats()[2].title == "Foxes [and] lamps"
    assert store.chats()[0].messages == 7
    store.delete(chats[0].key)
    flush(store)
    assert len(store.chats()) == 2
    assert store.search("owl")
    with pytest.raises(KeyError):
        store.load(chats[0].key)
    store.restore(chats[0].key)
    flush(store)
    assert same_steps(store.load(chats[0].key)[0], chats[0])


def test_a_name_given_by_the_user_outlives_later_saves(store: Store) -> None:
    chat = a_chat()
    save(store, chat)
    store.rename(chat.key, "mine")
    store.save_chat(chat, {})
    flush(store)
    assert store.chats()[0].title == "mine"


def test_duplicates_share_nothing(store: Store) -> None:
    chat = a_chat()
    save(store, chat)
    key, done = store.duplicate(chat.key)
    assert done.wait(60)
    copy, row = store.load(key)
    assert row.title == "Tell me about a fox (copy)"
    assert [turn.prompt for turn in copy.turns] == [turn.prompt for turn in chat.turns]
    assert copy.turns[0].reply is not None
    assert chat.turns[0].reply is not None
    assert copy.turns[0].reply.steps
    assert not {turn.key for turn in copy.every_turn()} & {turn.key for turn in chat.every_turn()}
    store.delete(chat.key)
    flush(store)
    assert store.load(key)[0].turns


def test_deleted_chats_are_forgotten_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = a_chat()
    store = Store(tmp_path / "chats.db")
    save(store, chat)
    store.delete(chat.key)
    store.close()
    for later, left in ((3600, 7), (25 * 3600, 0)):
        now = time.time()
        monkeypatch.setattr("specchat.chat.store.time.time", lambda now=now, later=later: now + later)
        store = Store(tmp_path / "chats.db")
        flush(store)
        store.close()
        monkeypatch.undo()
        with closing(sqlite3.connect(tmp_path / "chats.db")) as db:
            assert db.execute("SELECT count(*) FROM message").fetchone() == (left,)


# Search


def test_search_finds_titles_first_then_prompts(store: Store) -> None:
    chat = a_chat()
    save(store, chat)
    hits = store.search("fox")
    assert [hit.role for hit in hits] == ["title", "user", "assistant"]
    assert hits[1].snippet[slice(*hits[1].found[0])] == "fox"
    assert [hit.snippet for hit in store.search("owls fl")] == ["Well: Owls fly at night."]
    assert [hit.role for hit in store.search("nigh")] == ["assistant", "assistant"]
    assert store.search("fox unicorn") == []


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "fox*",
        "a OR b",
        "NEAR(",
        "title:fox",
        "-",
        "%",
        "_",
        "\\",
        "'",
        "",
        "  ",
        "\x00",
        "fo\udce9",
        "x" * 100_000,
    ],
)
def test_no_query_is_an_error(store: Store, query: str) -> None:
    save(store, a_chat())
    store.search(query)


def test_search_finds_scripts_without_spaces_and_signs(store: Store) -> None:
    chat = Conversation()
    turn = chat.ask("狐狸和灯的故事 50%")
    store.add_turn(chat, turn, {})
    assert [hit.role for hit in store.search("灯的")] == ["title", "user"]
    assert [hit.role for hit in store.search("%")] == ["title", "user"]
    assert store.search("$") == []


def test_search_finds_scripts_without_spaces_anywhere_and_in_titles(store: Store) -> None:
    at_start, within = Conversation(), Conversation()
    for chat, text in ((at_start, "東京は大きい"), (within, "私は東京に行く")):
        store.add_turn(chat, chat.ask(text), {})
        store.rename(chat.key, "x")
    assert {hit.chat for hit in store.search("東京")} == {at_start.key, within.key}
    store.rename(within.key, "私の東京旅行").wait(60)
    assert [hit.chat for hit in store.search("東京") if hit.role == "title"] == [within.key]
    assert [hit.role for hit in store.search("東京")] == ["title", "user", "user"]


def test_search_takes_accents_as_any_keyboard_writes_them(store: Store) -> None:
    chat = Conversation()
    store.add_turn(chat, chat.ask("a r\u00e9sum\u00e9"), {})
    assert store.search("re\u0301sum")


def test_a_search_for_nothing_that_can_be_found_finds_nothing(store: Store) -> None:
    save(store, a_chat())
    assert store.search("\x00") == []


def test_a_snippet_is_safe_to_show(store: Store) -> None:
    chat = Conversation()
    store.add_turn(chat, chat.ask("look \x1b]52;c;aGk=\x07 here \u202e [bold]"), {})
    (hit, *_) = [hit for hit in store.search("look") if hit.message]
    assert "\x1b" not in hit.snippet
    assert "\u202e" not in hit.snippet


# Trouble


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"chats\.db was written by a newer specchat \(schema 99"):
        Store(path)
    assert path.read_bytes() == before


def test_an_older_schema_is_brought_up_to_date_and_backed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    save(store, a_chat())
    store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE chat ADD COLUMN mood TEXT; SELECT 1;"))
    store = Store(path)
    assert len(store.chats()) == 1
    store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
        assert "mood" in {row[1] for row in db.execute("PRAGMA table_info(chat)")}
    copy = tmp_path / f"chats.db.v{len(schema.MIGRATIONS) - 1}"
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT count(*) FROM chat").fetchone() == (1,)
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_file_of_the_first_schema_opens_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema.MIGRATIONS[0])
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO chat VALUES (1, 'k', '', 'Foxes', '', 1, 5.0, 6.0, NULL, '{}')")
        db.execute("INSERT INTO message VALUES (1, 'm', 'k', NULL, 'user', 'a fox', 5.0, 'sent', 5.0, '{}')")
        db.commit()
    store = Store(path)
    (entry,) = store.chats()
    assert (entry.key, entry.title, entry.pinned, entry.preview, entry.tags) == ("k", "Foxes", True, "a fox", ())
    store.tag("k", ("work/reports",)).wait(60)
    assert store.chats()[0].tags == ("work/reports",)
    assert [hit.message for hit in store.search("fox #work")] == [None, "m"]
    store.close()


def test_a_file_that_others_may_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    save(store, a_chat())
    for file in tmp_path.iterdir():
        file.chmod(0o644)
    other = Store(path)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "chats.db": 0o600,
        "chats.db-wal": 0o600,
        "chats.db-shm": 0o600,
    }
    other.close()
    store.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    save(store, a_chat())
    store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE chat ADD COLUMN mood TEXT; nonsense;"))
    with pytest.raises(StoreError):
        Store(path)
    monkeypatch.undo()
    store = Store(path)
    assert len(store.chats()) == 1
    store.close()


@pytest.mark.parametrize("contents", [b"not a database at all, just text" * 40, b"\x00" * 5000])
def test_other_files_are_left_alone(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "chats.db"
    path.write_bytes(contents)
    with pytest.raises(StoreError, match=r"is damaged or no database of specchat.*chats\.db"):
        Store(path)
    assert path.read_bytes() == contents


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.commit()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    with closing(sqlite3.connect(path)) as db:
        assert [row[0] for row in db.execute("SELECT name FROM sqlite_master")] == ["theirs"]


NOBODY = 65534


def without_rights(run: Callable[[], str]) -> str:
    """What `run` gives in a process that may not write everywhere, as root may."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(writing, run().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        printed = stream.read()
    os.waitpid(pid, 0)
    return printed


@pytest.mark.parametrize("what", ["file", "folder", "both", "folder without a file"])
def test_what_cannot_be_written_is_told_and_left_alone(what: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies where only its owner may look
        path = Path(folder) / "chats.db"
        if what != "folder without a file":
            store = Store(path)
            save(store, a_chat())
            store.close()
            path.chmod(0o444 if what in ("file", "both") else 0o666)
        Path(folder).chmod(0o777 if what == "file" else 0o555)
        before = path.read_bytes() if path.exists() else None

        def printed() -> str:
            try:
                Store(path)
            except StoreError as error:
                return str(error)
            return "opened"

        assert re.search(r"cannot be (written|opened).*heck.* permissions", without_rights(printed))
        assert (path.read_bytes() if path.exists() else None) == before
        assert [found.name for found in Path(folder).iterdir()] == ([path.name] if before else [])
        Path(folder).chmod(0o700)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be (written|opened)"):
        Store(tmp_path)


def test_a_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_S", 0.05)
    monkeypatch.setattr(writer, "RETRY_S", 0.05)
    path = tmp_path / "chats.db"
    store = Store(path)
    flush(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    chat = Conversation()
    assert not store.add_turn(chat, chat.ask("hello"), {})
    assert "locked by another program" in store.delay
    assert not store.holds(chat.key)
    assert "locked by another program" in store.problem
    assert store.unsaved == 2
    other.execute("ROLLBACK")
    other.close()
    flush(store)
    assert store.problem == ""
    assert store.load(chat.key)[0].turns[0].prompt == "hello"
    store.close()


def test_a_lock_is_told_while_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_S", 600.0)
    store, other = Store(tmp_path / "chats.db"), sqlite3.connect(tmp_path / "chats.db", isolation_level=None)
    flush(store)
    other.execute("BEGIN IMMEDIATE")
    chat = Conversation()
    saving = Saving(store, lambda _: {})
    assert "locked by another program" in saving.asked(chat, chat.ask("hello"))
    other.close()
    assert store.holds(chat.key)
    assert (store.problem, store.close()) == ("", True)


def test_a_disk_that_does_not_answer_is_told_as_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_saved_soon", SAVED_SOON)
    monkeypatch.setattr("specchat.chat.store.SHOWN_SOON_S", 0.01)
    store, answers, chat = Store(tmp_path / "chats.db"), Event(), Conversation()
    store._writer.put(lambda _: answers.wait(60) and None)
    said = Saving(store, lambda _: {}).asked(chat, chat.ask("hello"))
    assert said == "This message is not saved yet. The disk is slow."
    answers.set()
    assert store.holds(chat.key)


def test_an_error_is_met_whatever_another_thread_reads(tmp_path: Path) -> None:
    shared = connection.connect(tmp_path / "some.db", alone=True)
    shared.execute("CREATE TABLE some (text)")
    shared.execute(f"PRAGMA max_page_count = {shared.execute('PRAGMA page_count').fetchone()[0]}")
    met, ended = [], Event()

    def write() -> None:
        try:
            for _ in range(500):
                with pytest.raises(sqlite3.OperationalError, match="full"):
                    shared.execute("INSERT INTO some VALUES (?)", ("x" * 10_000,))
                met.append(True)
        finally:
            ended.set()

    Thread(target=write).start()
    while not ended.is_set():
        assert shared.execute("SELECT count(*) FROM some").fetchone() == (0,)
    assert len(met) == 500
    shared.close()


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_S", 0.05)
    store = Store(tmp_path / "chats.db")
    chat = a_chat()
    save(store, chat)
    room(store, 0)
    big = chat.ask("x" * 1_000_000)
    assert not store.add_turn(chat, big, {})
    assert "is full" in store.problem
    assert [turn.prompt for turn in store.load(chat.key)[0].turns] == ["Tell me about a fox", "And a lamp?"]
    room(store, 10_000)
    flush(store)
    assert store.problem == ""
    assert store.load(chat.key)[0].turns[-1].prompt == big.prompt
    store.close()


def test_closing_with_something_unsaved_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_S", 0.05)
    path = tmp_path / "chats.db"
    store = Store(path)
    flush(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    chat = Conversation()
    store.add_turn(chat, chat.ask("hello"), {})
    assert not store.close(0.3)
    other.close()


def test_two_at_once(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    chats = [a_chat() for _ in range(4)]
    for store, chat in zip((one, two, one, two), chats, strict=True):
        save(store, chat)
    assert len(one.chats()) == len(two.chats()) == 4
    one.delete(chats[1].key)
    flush(one)
    two.save_reply(chats[1], answer(chats[1], chats[1].turns[0], "still writing"))
    flush(two)
    for store in (one, two):
        assert same_steps(store.load(chats[3].key)[0], chats[3])
        assert store.close()
    with closing(sqlite3.connect(tmp_path / "chats.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_message_of_a_removed_chat_does_not_hold_up_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    lost, kept = Conversation(), a_chat()
    store.save_reply(lost, answer(lost, lost.ask("gone"), "nowhere"))
    save(store, kept)
    assert store.problem == ""
    assert len(store.chats()) == 1
    store.close()


def test_in_memory_it_works_the_same() -> None:
    store = Store()
    chat = a_chat()
    save(store, chat)
    assert same_steps(store.load(chat.key)[0], chat)
    assert store.search("owl")
    assert store.close()


def test_a_change_that_fails_in_any_way_does_not_end_the_saving(store: Store) -> None:
    def broken(_: sqlite3.Connection) -> None:
        raise UnicodeEncodeError("utf-8", "x", 0, 1, "cannot be saved")

    store._writer.put(broken)
    save(store, a_chat())
    assert len(store.chats()) == 1
    assert store.problem == ""


def test_a_name_given_in_another_copy_outlives_an_older_one(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    store.rename(chat.key, "first").wait(60)
    here, _ = store.load(chat.key)
    other = Store(tmp_path / "chats.db")
    other.rename(chat.key, "second").wait(60)
    other.close()
    assert here.name == "first"
    store.add_turn(here, here.ask("And now?"), {})
    store.save_chat(here, {})
    flush(store)
    row = store.row(chat.key)
    assert row is not None
    assert (row.name, row.title) == ("second", "second")


def test_a_chat_deleted_in_another_copy_comes_back_with_the_next_prompt(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    other = Store(tmp_path / "chats.db")
    other.delete(chat.key).wait(60)
    store.save_chat(chat, {})
    flush(store)
    assert store.chats() == []
    assert store.add_turn(chat, chat.ask("Are you there?"), {})
    assert [entry.key for entry in other.chats()] == [chat.key]
    other.close()


def test_a_chat_removed_by_another_copy_comes_back_whole(store: Store, tmp_path: Path) -> None:
    chat = a_chat()
    save(store, chat)
    with closing(sqlite3.connect(tmp_path / "chats.db")) as db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("DELETE FROM chat")
        db.commit()
    assert store.add_turn(chat, chat.ask("Are you there?"), {})
    loaded, _ = store.load(chat.key)
    assert [turn.prompt for turn in loaded.turns] == ["Tell me about a fox", "And a lamp?", "Are you there?"]
    assert len(list(loaded.every_turn())) == 4


def test_damage_that_shows_while_the_file_is_open_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    store = Store(path)
    save(store, a_chat())
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    chat = Conversation()
    assert not store.add_turn(chat, chat.ask("hello"), {})
    assert "damaged" in store.problem
    assert not store.close(0.3)


def test_a_reply_cut_off_whose_figures_are_damaged_does_not_hold_up_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    chat = a_chat()
    save(store, chat)
    store.close()
    with closing(sqlite3.connect(tmp_path / "chats.db")) as db:
        db.execute("UPDATE message SET meta = '{', state = 'writing', flushed = 0 WHERE role = 'assistant'")
        db.commit()
    store = Store(tmp_path / "chats.db")
    flush(store)
    loaded = store.load(chat.key)[0].turns[0].reply
    assert loaded is not None
    assert loaded.end.error == INTERRUPTED
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit to the size of files there")
def test_a_file_that_cannot_grow_is_reported(tmp_path: Path) -> None:
    code = f"""
import resource
from pathlib import Path
from specchat.chat.schema import StoreError
from specchat.chat.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    Store(Path({str(tmp_path / "chats.db")!r}))
except StoreError as error:
    print(error)
"""
    command = [sys.executable, "-B", "-c", code]  # else what Python compiles is cut, and kept
    result = subprocess.run(command, capture_output=True, text=True)
    assert "Make room on it" in result.stdout
    assert result.stderr == ""


def test_replies_of_saved_chats_are_given_the_newest_first(store: Store) -> None:
    first, second, gone = a_chat(), a_chat(), a_chat()
    for chat in (first, second, gone):
        save(store, chat)
    texts = tuple(turn.reply.raw for turn in reversed(first.turns) if turn.reply)
    assert len(texts) == 2
    assert store.delete(gone.key).wait(60)
    assert [key for key, _ in store.replies(10_000)] == [second.key, first.key]
    assert {text for _, found in store.replies(10_000) for text in found} >= set(texts)
    newest = store.replies(10_000)[0][1]
    assert store.replies(len(newest[0]) + 1) == [(second.key, newest[:1])]
    assert store.replies_of(gone.key) == newest
    assert newest[0] == texts[0]
