"""`specchat chats`: the saved chats from the command line."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.cli.exit_codes import ExitCode
from specchat.config.paths import user_paths
from tests.chat.conftest import a_chat, answer, flush, save
from tests.cli.conftest import Run, configure
from tests.cli.test_completion import complete
from tests.cli.test_imports import imported
from tests.cli.test_processes import ROOT, SCRIPTED, Terminal


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """The user's chats, as the running app has them open."""
    (home / "data").mkdir(parents=True)
    opened = Store(home / "data" / "chats.db")
    yield opened
    opened.close()


def chat_about(store: Store, prompt: str, reply: str = "Fine.") -> Conversation:
    chat = Conversation()
    answer(chat, chat.ask(prompt), reply)
    save(store, chat)
    return chat


def test_the_list_has_pinned_chats_first(run: Run, store: Store) -> None:
    foxes = chat_about(store, "Foxes \x1b[2J")
    owls = chat_about(store, "Owls")
    store.pin(foxes.key, True)
    flush(store)
    lines = run("chats", "list").stdout.splitlines()
    assert re.fullmatch(r" +1  \d{4}-\d\d-\d\d \d\d:\d\d \* Foxes ␛\[2J", lines[0])
    assert re.fullmatch(r" +2  .*:\d\d   Owls", lines[1])
    found = json.loads(run("chats", "list", "--json", "--limit", "1").stdout)
    assert [(chat["key"], chat["pinned"], chat["messages"]) for chat in found] == [(foxes.key, True, 2)]
    assert owls.key not in run("chats", "list", "--limit", "1").stdout


def test_without_chats_the_list_is_empty(run: Run) -> None:
    shown = run("chats", "list")
    assert (shown.stdout, shown.stderr) == ("", "There are no chats yet.\n")
    assert run("chats", "list", "--json").output == "[]\n"


@pytest.mark.parametrize("name", ["last", "1", "tell ME about", "Tell me about a fox", "KEY"])
def test_a_chat_is_found_by_what_people_call_it(run: Run, store: Store, name: str) -> None:
    chat_about(store, "Owls")
    chat = a_chat()
    save(store, chat)
    result = run("chats", "show", chat.key if name == "KEY" else name)
    assert result.exit_code == 0
    assert result.stdout.startswith("Tell me about a fox\n\nSystem prompt:\nBe brief.\n\nYou:\nTell me about a fox\n")
    assert result.stdout.endswith("\ndemo:\nLamps are for the night.\n")


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cats", 'There is no chat "cats". specchat chats list shows them.'),
        ("0", 'There is no chat "0"'),
        ("7", 'There is no chat "7"'),
        ("", 'There is no chat ""'),
        ("fox", '2 titles begin with "fox". Give a key: '),
        ("a\x1b[2J", 'There is no chat "a␛[2J"'),
    ],
)
@pytest.mark.parametrize("command", ["show", "export", "delete"])
def test_a_chat_that_is_not_there_is_told(run: Run, store: Store, command: str, name: str, words: str) -> None:
    chat_about(store, "Fox one")
    chat_about(store, "Fox two")
    result = run("chats", command, name)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert words in result.stderr


def test_last_without_chats_is_told(run: Run) -> None:
    result = run("chats", "show", "last")
    assert (result.exit_code, result.stderr) == (ExitCode.USAGE, "Error: There are no chats yet.\n")


def test_what_is_exported_can_be_imported(run: Run, store: Store, tmp_path: Path) -> None:
    chats = [a_chat(), a_chat()]
    for chat in chats:
        save(store, chat)
    path = tmp_path / "all.json"
    assert run("chats", "export", "--all", "--output", str(path)).exit_code == 0
    before = [store.whole(chat.key) for chat in chats]
    with sqlite3.connect(store.path or "") as database:
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("DELETE FROM chat")
    result = run("chats", "import", str(path))
    assert (result.exit_code, result.stdout) == (0, f"{path}: 2 chats imported\n")
    assert [store.whole(chat.key) for chat in chats] == before
    assert (
        run("chats", "show", chats[0].key, "--json").stdout
        == run("chats", "export", chats[0].key, "--format", "json").stdout
    )
    assert "already here" in run("chats", "import", str(path)).stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are always UTF-8 there")
def test_a_file_name_of_another_encoding_is_written_as_it_is(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.json"
    for arguments in (("export", "--all", "--format", "json", "--output", path), ("import", path)):
        command = [sys.executable, "-m", "specchat", "chats", *arguments]
        result = subprocess.run(command, cwd=ROOT, capture_output=True)
        assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(path + b": 0 chats imported")


def test_markdown_is_written_by_default_and_never_over_a_file(run: Run, store: Store, tmp_path: Path) -> None:
    chat = chat_about(store, "Owls")
    assert "## You\n\nOwls\n" in run("chats", "export", chat.key).stdout
    path = tmp_path / "a.md"
    path.write_text("mine")
    result = run("chats", "export", "last", "--output", str(path))
    assert (result.exit_code, path.read_text()) == (ExitCode.USAGE, "mine")
    assert "a.md exists already and is kept" in result.stderr


def test_exports_that_make_no_sense_are_refused(run: Run, store: Store) -> None:
    chat_about(store, "Owls")
    chat_about(store, "Foxes")
    assert "Give the chats to export, or --all" in run("chats", "export").stderr
    assert "Give the chats to export, or --all" in run("chats", "export", "1", "--all").stderr
    assert "A .md file holds one chat" in run("chats", "export", "1", "2").stderr
    assert "A .html file holds one chat" in run("chats", "export", "--all", "--format", "html").stderr


def test_a_chat_is_exported_as_a_page(run: Run, store: Store, tmp_path: Path) -> None:
    chat_about(store, "Owls")
    assert run("chats", "export", "last", "--output", str(tmp_path / "a.html")).exit_code == ExitCode.OK
    page = (tmp_path / "a.html").read_text()
    assert page == run("chats", "export", "last", "--format", "html").stdout
    assert "<h2>You</h2>" in page


def test_a_file_that_cannot_be_used_adds_nothing(run: Run, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"format": "specchat", "version": 1, "chats": [{}]}')
    result = run("chats", "import", str(path))
    assert result.exit_code == ExitCode.USAGE
    assert f"{path}: chats[0].key: Field required." in result.stderr
    assert store.chats() == []


def test_search_shows_where(run: Run, store: Store) -> None:
    chat = chat_about(store, "Where do owls live?", "In old trees \x1b[2J.")
    result = run("chats", "search", "old", "tre")
    assert result.stdout == f"{chat.key}  Where do owls live?\n    In old trees ␛[2J.\n"
    (hit,) = json.loads(run("chats", "search", "old", "--json").stdout)
    assert (hit["chat"], hit["role"]) == (chat.key, "assistant")
    nothing = run("chats", "search", "cats")
    assert (nothing.stdout, nothing.stderr) == ("", "No chat holds all of these words.\n")


def test_deleted_chats_come_back(run: Run, store: Store) -> None:
    chat_about(store, "Foxes")
    chat = chat_about(store, "Owls")
    read = user_paths().read / "a.read"
    read.parent.mkdir(parents=True)
    read.write_bytes(b"of unknown chats")
    result = run("chats", "delete", "owls")
    assert not read.exists()
    assert f"specchat chats restore {chat.key}" in result.stdout
    assert [entry.title for entry in store.chats()] == ["Foxes"]
    assert 'no chat "cats". Deleted last were "Owls".' in run("chats", "restore", "cats").stderr
    assert run("chats", "restore").stdout == 'Brought back "Owls".\n'
    assert len(store.chats()) == 2
    result = run("chats", "restore")
    assert (result.exit_code, "No chat was deleted" in result.stderr) == (ExitCode.USAGE, True)
    run("chats", "delete", chat.key)
    assert run("chats", "restore", chat.key).exit_code == 0


def test_renaming(run: Run, store: Store) -> None:
    chat = chat_about(store, "Owls")
    assert run("chats", "rename", "last", "Night", "birds \x1b[1m").exit_code == 0
    assert store.load(chat.key)[0].title == "Night birds ␛[1m"
    assert "The title is empty" in run("chats", "rename", "last", " ").stderr


def test_tagging(run: Run, store: Store) -> None:
    chat_about(store, "Owls")
    assert run("chats", "tag", "last", "animals/birds", "night").stdout == '"Owls" has #animals/birds #night.\n'
    assert run("chats", "list").stdout.endswith("   Owls  #animals/birds #night\n")
    assert run("chats", "search", "#animals", "owl").stdout.count("Owls") == 2
    assert run("chats", "search", "#plants", "owl").stdout == ""
    assert run("chats", "tag", "last", "-animals/birds", "-night").stdout == '"Owls" has no tags.\n'


def test_syncing(run: Run, store: Store, home: Path) -> None:
    chat = chat_about(store, "Owls")
    assert "set sync_folder" in run("chats", "sync").stderr
    configure(home, config=f"sync_folder = {json.dumps(str(home / 'common'))}\n")
    assert run("chats", "sync").stdout == "0 chats received, 1 chat written\n"
    assert (home / "common" / f"{chat.key}.json").stat().st_mode & 0o777 == 0o600
    assert run("chats", "sync", str(home / "other")).stdout == "0 chats received, 1 chat written\n"


def test_a_database_that_cannot_be_used_is_told(run: Run, home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data" / "chats.db").write_bytes(b"no database" * 1000)
    result = run("chats", "list")
    assert result.exit_code == ExitCode.UNUSABLE
    assert "is damaged or no database of specchat" in result.stderr


def damage(home: Path, *statements: str) -> None:
    with sqlite3.connect(home / "data" / "chats.db") as database:
        for statement in statements:
            database.execute(statement)


COMMANDS = ("list", "list --json", "show 1", "search fox", "export --all --format json", "export 1", "rename 1 x")


@pytest.mark.rotated(4)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "column", ["chat.title", "chat.system", "chat.updated", "chat.created", "chat.view", "message.text", "message.meta"]
)
def test_damaged_columns_are_shown_or_told(run: Run, store: Store, home: Path, command: str, column: str) -> None:
    save(store, a_chat())
    flush(store)
    table, name = column.split(".")
    for value in ("x'ff00'", "CAST(x'ff41' AS TEXT)", "9e999", "'{]'"):
        damage(home, f"UPDATE {table} SET {name} = {value}")
        result = run("chats", *command.split())
        assert result.exit_code in (0, ExitCode.UNUSABLE), result.exception
        if result.exit_code:
            assert "is damaged" in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_schema_is_told(run: Run, store: Store, home: Path, command: str) -> None:
    save(store, a_chat())
    store.close()
    path = home / "data" / "chats.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE chat", b"CREATE\xb0\x97\xcdABLE chat"))
    result = run("chats", *command.split())
    assert result.exit_code == ExitCode.UNUSABLE, result.exception
    assert "is damaged" in result.stderr


def test_a_chat_that_is_gone_is_told(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    save(store, a_chat())
    monkeypatch.setattr(Store, "row", lambda *_: None)
    result = run("chats", "show", "1")
    assert (result.exit_code, "any more" in result.stderr) == (ExitCode.UNUSABLE, True)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DROP TABLE message_words_data", "is damaged"),
        ("CREATE TRIGGER full BEFORE INSERT ON message BEGIN SELECT RAISE(FAIL, 'x') FROM nowhere; END", "nowhere"),
    ],
)
def test_chats_that_cannot_be_saved_end_an_import_at_once(
    run: Run, store: Store, home: Path, tmp_path: Path, statement: str, words: str
) -> None:
    save(store, a_chat())
    path = tmp_path / "all.json"
    run("chats", "export", "--all", "--output", str(path))
    damage(home, "PRAGMA foreign_keys = ON", "DELETE FROM chat", statement)
    result = run("chats", "import", str(path))
    assert result.exit_code == ExitCode.UNUSABLE
    assert f"{path} was imported up to chat 0 of 1" in result.stderr
    assert words in result.stderr


def test_keys_complete(store: Store) -> None:
    chat = chat_about(store, "Owls")
    assert complete("chats", "show", chat.key[:3]) == [chat.key]
    assert complete("chats", "delete", "la") == ["last"]


def test_keys_of_deleted_chats_complete(store: Store) -> None:
    kept, gone = chat_about(store, "kept"), chat_about(store, "gone")
    store.delete(gone.key).wait(60)
    assert complete("chats", "restore", "") == [gone.key]
    assert complete("chats", "delete", "") == [kept.key, "last"]


def test_completion_makes_no_database(home: Path) -> None:
    assert complete("chats", "show", "0") == []
    assert not home.exists()


def test_nothing_heavy_is_imported(store: Store) -> None:
    chat_about(store, "Owls")
    assert imported("chats", "--help") == set()
    assert imported("chats", "list") == set()


def test_on_a_terminal_codes_are_taken_out_and_deleting_asks(store: Store) -> None:
    chat = chat_about(store, "Owls", "A \x1b]52;c;aGk=\x07 bird.")
    terminal = Terminal(*SCRIPTED, "chats", "show", "last")
    assert terminal.end() == 0
    assert "␛]52;c;aGk= bird." in terminal.output.decode()
    assert b"\x1b" not in terminal.output
    terminal = Terminal(*SCRIPTED, "chats", "delete", chat.key)
    terminal.until(b'Delete "Owls"? [y/N]')
    terminal.type(b"n\n")
    assert terminal.end() == ExitCode.INTERRUPTED
    assert len(store.chats()) == 1
    terminal = Terminal(*SCRIPTED, "chats", "delete", chat.key, "--yes")
    assert terminal.end() == 0
    assert store.chats() == []
