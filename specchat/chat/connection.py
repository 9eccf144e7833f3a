"""Connections to a database of chats."""

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

BUSY_S = 2.0
"""Seconds that a statement waits for another program's lock."""


class Connection(sqlite3.Connection):
    """In a damaged file SQLite's own messages may be no text; such an error is one of the database as well."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(str(error)) from None


class SharedConnection(Connection):
    """A connection for two threads: one statement at a time, from its first row to its last.

    SQLite keeps an error's code in the connection. A statement of another thread would clear it before Python looks,
    and what was not written would count as written.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._statement = Lock()

    def execute(self, *arguments: Any) -> Any:
        with self._statement, closing(super().execute(*arguments)) as cursor:
            return _Rows(cursor.fetchall())


class _Rows(list[Any]):
    """Rows that were read, with the methods of a cursor that has executed one statement."""

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        return self


def connect(path: Path, alone: bool = False) -> sqlite3.Connection:
    """Open a database; `alone` for no other connection meanwhile, which needs no file beside it.

    Raises:
        sqlite3.Error: it cannot be used.
    """
    kind = SharedConnection if alone else Connection
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, factory=kind)
    try:
        if alone:  # before anything else: only the first access decides it
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()  # or its locks stay
        raise
    return connection


def in_memory() -> sqlite3.Connection:
    """An empty database in main memory."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=SharedConnection)
