"""The database file: opening it, its tables, and upgrades of older ones."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from specchat.chat.connection import connect, in_memory
from specchat.private import opener, tighten
from specchat.reading import read_head

APPLICATION_ID = 0x53504543
"""Marks the file as ours in its header."""

MIGRATIONS = (
    """
    CREATE TABLE chat (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        title TEXT NOT NULL,
        system TEXT NOT NULL,
        pinned INTEGER NOT NULL,
        created REAL NOT NULL,
        updated REAL NOT NULL,
        deleted REAL,
        view TEXT NOT NULL
    );
    CREATE TABLE message (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        chat TEXT NOT NULL REFERENCES chat (key) ON DELETE CASCADE,
        parent TEXT,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        created REAL NOT NULL,
        state TEXT NOT NULL,
        flushed REAL NOT NULL,
        meta TEXT NOT NULL
    );
    CREATE INDEX message_of_chat ON message (chat, id);
    CREATE INDEX chat_by_date ON chat (updated);
    CREATE TABLE trace (
        message TEXT PRIMARY KEY REFERENCES message (key) ON DELETE CASCADE,
        steps BLOB NOT NULL
    );

    CREATE VIRTUAL TABLE chat_words USING fts5 (
        title, content = 'chat', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER chat_added AFTER INSERT ON chat BEGIN
        INSERT INTO chat_words (rowid, title) VALUES (new.id, new.title);
    END;
    CREATE TRIGGER chat_removed AFTER DELETE ON chat BEGIN
        INSERT INTO chat_words (chat_words, rowid, title) VALUES ('delete', old.id, old.title);
    END;
    CREATE TRIGGER chat_retitled AFTER UPDATE OF title ON chat BEGIN
        INSERT INTO chat_words (chat_words, rowid, title) VALUES ('delete', old.id, old.title);
        INSERT INTO chat_words (rowid, title) VALUES (new.id, new.title);
    END;

    CREATE VIRTUAL TABLE message_words USING fts5 (
        text, content = 'message', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER message_added AFTER INSERT ON message WHEN new.state <> 'writing' BEGIN
        INSERT INTO message_words (rowid, text) VALUES (new.id, new.text);
    END;
    CREATE TRIGGER message_removed AFTER DELETE ON message WHEN old.state <> 'writing' BEGIN
        INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.id, old.text);
    END;
    CREATE TRIGGER message_unlisted AFTER UPDATE OF text, state ON message WHEN old.state <> 'writing' BEGIN
        INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.id, old.text);
    END;
    CREATE TRIGGER message_listed AFTER UPDATE OF text, state ON message WHEN new.state <> 'writing' BEGIN
        INSERT INTO message_words (rowid, text) VALUES (new.id, new.text);
    END;
    """,
    """
    ALTER TABLE chat ADD COLUMN tags TEXT NOT NULL DEFAULT '';
    CREATE TABLE picture (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
    """,
)
"""Script number n brings a database of schema n to n + 1. Words of a reply are indexed once it has ended."""


MAGIC = b"SQLite format 3\0"


class StoreError(Exception):
    """The database cannot be used; the message is a sentence that names the file and says what to do.

    It may be read all the same where there is no room beside it (`full`).
    """

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


def opened(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Connections that read and write a database, which is made where there is none. On a full disk they are one.

    Raises:
        StoreError: as `prepare`.
    """
    try:
        prepare(path)
    except StoreError as error:
        if not error.full or (alone := _alone(path)) is None:
            raise
        return alone, alone
    return connect(path), connect(path)


def _alone(path: Path) -> sqlite3.Connection | None:
    """A connection to a database of the newest schema that needs no room; None where there can be none."""
    connection = None
    try:
        connection = connect(path, alone=True)
        if check(connection, path) == len(MIGRATIONS):
            connection.execute("SELECT count(*) FROM chat").fetchone()
            return connection
    except (sqlite3.Error, StoreError):
        pass
    if connection is not None:
        connection.close()
    return None


def prepare(path: Path) -> None:
    """Make the file where there is none, check it, and bring its schema up to date.

    Raises:
        StoreError: not ours, damaged, made by a newer specchat, locked, or not writable. The file stays as it is.
    """
    try:
        _make(path)
        for suffix in ("-wal", "-shm"):
            tighten(path.with_name(path.name + suffix))
        with closing(connect(path)) as connection:
            check(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            _migrate(connection, path)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise StoreError(in_words(error, path), code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)) from None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened ({error.strerror}). Check the permissions of the file and its folder."
        ) from None


def opened_in_memory() -> sqlite3.Connection:
    """A connection to an empty database of the newest schema in main memory."""
    connection = in_memory()
    for script in MIGRATIONS:
        connection.executescript(script)
    return connection


def check(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a database's schema, 0 of an empty one; nothing is changed.

    Raises:
        StoreError: it is not ours, or made by a newer specchat.
    """
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer specchat (schema {version}, this one knows {len(MIGRATIONS)}). "
            "Update specchat, or set SPECCHAT_HOME to another folder."
        )
    if not _is_ours(connection) and _has_tables(connection):
        raise StoreError(f"{path} is a database of another program. Move it away.")
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version == len(MIGRATIONS) and _is_ours(connection):
        connection.execute("BEGIN IMMEDIATE")  # fails here rather than at the first message
        connection.execute("ROLLBACK")
        return
    if version:
        _back_up(connection, path.with_name(f"{path.name}.v{version}"))
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for script in MIGRATIONS[_version(connection) :]:  # read again: another copy may have been quicker
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself where the disk is full
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    """The statements of a script: `executescript` would end the transaction they belong in."""
    statements, current = [], ""
    for part in script.split(";"):
        current += part + ";"
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return [statement for statement in statements if statement.strip(" \n;")]


def _make(path: Path) -> None:
    """Make the file where there is none; what SQLite puts beside it gets its mode.

    Raises:
        sqlite3.Error: there is something else, which stays as it is.
        OSError: it cannot be opened.
    """
    try:
        head = read_head(path, len(MAGIC))
    except FileNotFoundError:
        head = b""
    if head and head != MAGIC:
        raise sqlite3.DatabaseError("could not decode it")
    os.close(opener(str(path), os.O_CREAT | os.O_RDWR))


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    _make(path)
    with closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _is_ours(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def is_locked(error: sqlite3.Error) -> bool:
    """True if another program holds the database."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def in_words(error: sqlite3.Error, path: Path | None) -> str:
    """A sentence on the trouble and the remedy. The path comes last: where there is little room, it is cut."""
    name = str(path or "in memory")
    code = _code(error)
    if "decode" in str(error):  # by Python, which gives no code
        code = sqlite3.SQLITE_CORRUPT
    match code:
        case sqlite3.SQLITE_FULL:
            return f"The disk is full: chats are not saved until there is room ({name})."
        case sqlite3.SQLITE_IOERR:
            return f"The chats cannot be read or written: the disk is full or fails. Make room on it ({name})."
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"The chats are locked by another program. Close that one ({name})."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return f"The chats cannot be written. Check the permissions of {name} and its folder."
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"The chats' file is damaged or no database of specchat. Move {name} away to start anew."
        case _:
            return f"The chats cannot be used: {error} ({name})."
