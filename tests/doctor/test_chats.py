"""Looking at the database of chats without changing it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from specchat.chat.schema import MIGRATIONS, StoreError
from specchat.chat.store import Store
from specchat.doctor.chats import Checkup, look_into
from tests.chat.conftest import a_chat, flush, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with two chats, one of them deleted, that nobody has open."""
    store = Store(tmp_path / "chats.db")
    for _ in range(2):
        save(store, a_chat())
    store.delete(store.chats()[0].key)
    flush(store)
    store.close()
    return tmp_path / "chats.db"


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_it_says_what_is_there_and_leaves_it_as_it_was(path: Path) -> None:
    before = files(path.parent)
    assert look_into(path) == Checkup(1, 7, path.stat().st_size, len(MIGRATIONS))
    assert files(path.parent) == before
    assert look_into(path.with_name("none.db")) is None


def test_what_waits_in_the_log_is_counted(path: Path) -> None:
    store = Store(path)
    save(store, a_chat())
    found = look_into(path)
    assert found is not None
    assert (found.chats, found.messages) == (2, 14)
    assert found.size > path.stat().st_size
    store.close()


def test_an_empty_file_is_an_outdated_database(tmp_path: Path) -> None:
    (tmp_path / "chats.db").touch()
    assert look_into(tmp_path / "chats.db") == Checkup(0, 0, 0, 0)
    assert Checkup(0, 0, 0, 0).outdated
    assert not Checkup(0, 0, 0, len(MIGRATIONS)).outdated


def test_damage_inside_is_found(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreError, match="damaged"):
        look_into(path)


def test_other_files_are_reported(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"newer specchat \(schema 99"):
        look_into(path)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE bills (sum)")
    with pytest.raises(StoreError, match="another program"):
        look_into(other)
    other.write_text("no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(StoreError, match=r"no database of specchat\. Move .*other\.db away"):
        look_into(other)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match=r"folder\.db"):
        look_into(tmp_path / "folder.db")
