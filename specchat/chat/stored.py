"""Saved chats as they are read."""

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from specchat.chat import rows, sql
from specchat.chat.record import Record
from specchat.chat.rows import ChatEntry, ChatRow, MessageRow, WholeChat
from specchat.chat.trace import record_of, unpack
from specchat.chat.tree import Conversation

if TYPE_CHECKING:
    from specchat.chat.search import Hit


class NoChat(KeyError):
    """There is no chat of a key, or none any more."""

    def __str__(self) -> str:
        return f"There is no chat {self.args[0]} any more."


class StoredChats:
    """The chats of a database. All methods raise sqlite3.Error where the file fails."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader
        self._version = self._data_version()

    def changed(self) -> bool:
        """Return True if this or another program wrote the file since the last call."""
        before, self._version = self._version, self._data_version()
        return self._version != before

    def merge(self, chat: Conversation) -> bool:
        """Add to a chat what other programs saved in it, its name too; whether there was anything."""
        row = self.row(chat.key)
        if row is None:
            return False
        renamed, chat.name = row.name != chat.name, row.name
        if sql.ended(self._reader, chat.key) <= chat.keys():
            return renamed
        return rows.merge(chat, self.messages(chat.key), self._record, self._picture) or renamed

    def chats(self) -> list[ChatEntry]:
        """Pinned ones first, then the latest."""
        return sql.chats(self._reader)

    def tags(self) -> list[str]:
        """The tags that chats have, in the order of the alphabet."""
        return sorted({tag for entry in self.chats() for tag in entry.tags}, key=str.casefold)

    def scratch(self) -> ChatEntry | None:
        """The latest scratch chat, which no list shows; None without one."""
        return next(iter(sql.scratch(self._reader)), None)

    def deleted(self) -> list[ChatEntry]:
        """Chats that can be restored, the latest deleted first."""
        return sql.deleted(self._reader)

    def row(self, key: str) -> ChatRow | None:
        """A chat without its messages, None when there is none of that key."""
        return sql.chat(self._reader, key)

    def _row(self, key: str) -> ChatRow:
        row = self.row(key)
        if row is None:
            raise NoChat(key)
        return row

    def messages(self, key: str) -> list[MessageRow]:
        """All messages of a chat, parents before children."""
        return sql.messages(self._reader, key)

    def traces(self, key: str) -> dict[str, bytes]:
        """The packed records of a chat by the keys of their replies."""
        return sql.traces(self._reader, key)

    def load(self, key: str) -> tuple[Conversation, ChatRow]:
        """A saved chat.

        Raises:
            NoChat: there is none of that key.
        """
        row = self._row(key)
        return rows.conversation(row, self.messages(key), self._record, self._picture), row

    def whole(self, key: str) -> WholeChat:
        """A saved chat as its rows. What hangs on nothing, which no chat shows, and unreadable records are left out.

        Raises:
            NoChat: there is none of that key.
        """
        row = self._row(key)
        kept: dict[str | None, MessageRow] = {}
        for message in self.messages(key):
            if message.parent is None or message.parent in kept:
                kept[message.key] = rows.readable(message)
        traces = {}
        for reply, blob in self.traces(key).items():
            with suppress(ValueError):
                if reply in kept:
                    traces[reply] = unpack(blob)
        return WholeChat(row, tuple(kept.values()), traces, sql.pictures(self._reader, key))

    def replies(self, characters: int) -> list[tuple[str, tuple[str, ...]]]:
        """The texts of replies by chat, the newest first and no more than `characters` of them."""
        found: dict[str, list[str]] = {}
        for key, text in sql.replies(self._reader):
            characters -= len(text)
            if characters < 0:
                break
            found.setdefault(key, []).append(text)
        return [(key, tuple(texts)) for key, texts in found.items()]

    def replies_of(self, key: str) -> tuple[str, ...]:
        """The texts of a chat's replies, the newest first, also of a deleted chat."""
        return tuple(sql.replies_of(self._reader, key))

    def search(self, text: str, limit: int = 50) -> list["Hit"]:
        """Chats whose title or messages hold the words of `text`, best first; with the tags it names (`#work`)."""
        from specchat.chat.search import find

        return find(self._reader, text, limit)

    def _data_version(self) -> int:
        with suppress(sqlite3.Error):
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])
        return 0

    def _has(self, key: str) -> bool:
        try:
            return sql.has_chat(self._reader, key)
        except sqlite3.Error:  # the writer meets it as well, and reports it
            return True

    def _known(self, keys: Iterable[str]) -> bool:
        return any(sql.has_message(self._reader, key) for key in keys)

    def _picture(self, digest: str) -> bytes | None:
        try:
            return sql.picture(self._reader, digest)
        except sqlite3.Error:  # damaged; the reply that needs it says so
            return None

    def _record(self, key: str, start: int) -> Record | None:
        blob = sql.trace(self._reader, key)
        try:
            return record_of(unpack(blob), start) if blob else None
        except ValueError:
            return None
