"""The database of chats: whether it opens, and what is in it."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from specchat.chat.connection import BUSY_S, Connection
from specchat.chat.schema import MIGRATIONS, StoreError, check, in_words
from specchat.doctor.finding import Finding, note, ok

MIB = 1 << 20
_COUNTS = """
    SELECT count(DISTINCT chat.key), count(message.key)
    FROM chat LEFT JOIN message ON message.chat = chat.key WHERE deleted IS NULL
"""


@dataclass(frozen=True)
class Checkup:
    """A database that can be used: its chats without deleted ones, bytes with its log, and the schema's version."""

    chats: int
    messages: int
    size: int
    version: int

    @property
    def outdated(self) -> bool:
        """True if the schema is upgraded when specchat opens it."""
        return self.version < len(MIGRATIONS)


def look_into(path: Path) -> Checkup | None:
    """The database read as a whole, which takes about a second for each GiB; None where there is no file.

    Raises:
        StoreError: it cannot be used, or is damaged; the message says what to do.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        if not path.exists():
            return None
        # Only while nobody writes: a file opened as immutable is read without making others beside it.
        uri = f"{path.absolute().as_uri()}?{'mode=ro' if log.exists() else 'immutable=1'}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, factory=Connection)) as connection:
            version = check(connection, path)
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                raise StoreError(
                    f"{path} is damaged. Make a copy of it, see what `specchat chats export` or sqlite3's .recover "
                    "can save, and move it away."
                )
            chats, messages = connection.execute(_COUNTS).fetchone() if version else (0, 0)
            size = path.stat().st_size + (log.stat().st_size if log.exists() else 0)
            return Checkup(chats, messages, size, version)
    except sqlite3.Error as error:
        raise StoreError(in_words(error, path)) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be opened ({error.strerror}). Check its owner and permissions.") from None


def chats(path: Path) -> Finding:
    """A note where `path` cannot be used: specchat then keeps chats in memory."""
    try:
        found = look_into(path)
    except StoreError as error:
        return note("chats", str(error))
    if found is None:
        return ok("chats", f"no {path} yet: made with the first chat")
    held = f"{_several(found.chats, 'chat')}, {_several(found.messages, 'message')}, {found.size / MIB:.1f} MiB"
    outdated = ", upgraded when specchat opens it" if found.outdated else ""
    return ok("chats", f"{path}: {held}, schema {found.version}{outdated}")


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
