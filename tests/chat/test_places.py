"""Chats where there is no room, or where something else stands in the file's place."""

import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from specchat.chat.schema import StoreError
from specchat.chat.store import Store
from specchat.private import opener
from tests.chat.conftest import a_chat, save

ROOM = 20_000
"""Bytes that a file may have: less than what SQLite wants to put beside a database."""
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")


def kept(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    store = Store(path)
    save(store, a_chat())
    assert store.close()


def full_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


def test_chats_are_listed_and_exported_where_the_disk_is_full(tmp_path: Path) -> None:
    kept(tmp_path / "data" / "chats.db")
    environment = {**os.environ, "SPECCHAT_HOME": str(tmp_path)}
    for command in (["chats", "list"], ["chats", "export", "--all"]):
        done = subprocess.run(
            [sys.executable, "-B", "-m", "specchat", *command],  # else what Python compiles is cut, and kept
            preexec_fn=full_disk, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "Tell me about a fox" in done.stdout, done.stderr


@needs_pipes
def test_a_pipe_is_no_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chats.db")
    with pytest.raises(StoreError, match="it is not a regular file"):
        Store(tmp_path / "chats.db")


@needs_pipes
def test_a_pipe_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "engine.log")
    with pytest.raises(OSError, match=r"pipe|No such device"):
        open(tmp_path / "engine.log", "ab", opener=opener)  # noqa: SIM115 (it does not open)


def test_another_file_stays_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("mine, and longer than the head of a database")
    text.chmod(0o644)
    (tmp_path / "chats.db").symlink_to(text)
    with pytest.raises(StoreError, match="damaged or no database of specchat"):
        Store(tmp_path / "chats.db")
    assert text.stat().st_mode & 0o777 == 0o644
    assert text.read_text().startswith("mine")


def test_a_database_that_another_program_uses_is_not_taken_over(tmp_path: Path) -> None:
    kept(tmp_path / "chats.db")
    with closing(sqlite3.connect(tmp_path / "chats.db")) as other:
        other.execute("SELECT count(*) FROM chat").fetchone()
        store = Store(tmp_path / "chats.db")
        assert store.close()
