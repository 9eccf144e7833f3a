"""Saved chats: one SQLite file, or the memory where there can be none."""

import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from specchat.chat import rows, sql
from specchat.chat.record import Record
from specchat.chat.rows import ChatEntry, ChatRow, MessageRow, WholeChat
from specchat.chat.schema import opened, prepare_memory
from specchat.chat.trace import columns, pack, record_of, unpack
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.chat.writer import Writer

if TYPE_CHECKING:
    from specchat.chat.search import Hit

FORGET_AFTER_S = 24 * 3600.0
"""Time for which deleted chats can be restored; after it they are removed from the file."""
TICK_S = 0.02
"""Seconds between looks for a failure of the database while a change waits."""
SHOWN_SOON_S = 0.25
"""Seconds that a prompt may wait for the disk before it shows as sent."""


class NoChat(KeyError):
    """There is no chat of a key, or none any more."""

    def __str__(self) -> str:
        return f"There is no chat {self.args[0]} any more."


class Store:
    """Reads at once, writes in the writer's thread. Reading methods raise sqlite3.Error where the file fails."""

    def __init__(self, path: Path | None = None) -> None:
        """Open or make the file `path`; None keeps chats in memory only.

        Raises:
            StoreError: the file cannot be used; it stays as it is.
        """
        self.path = path
        if path is None:
            self._reader = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            prepare_memory(self._reader)
            writing = self._reader
        else:
            self._reader, writing = opened(path)
        self._version = self._data_version()
        self._writer = Writer(writing, path, lambda db: sql.tidy(db, time.time() - FORGET_AFTER_S))

    @property
    def problem(self) -> str:
        """Why nothing can be saved at the moment; empty when all is well."""
        return self._writer.problem

    @property
    def delay(self) -> str:
        """Why a change is not saved yet."""
        return self.problem or self._writer.lock or "The disk is slow."

    @property
    def unsaved(self) -> int:
        """Changes that wait to be saved."""
        return self._writer.waiting

    def saved(self, change: Event) -> bool:
        """Wait until a change is saved; False as soon as the database takes nothing."""
        while not change.wait(TICK_S):
            if self.problem:
                return False
        return True

    def holds(self, key: str) -> bool:
        """Wait for all changes; whether they are saved, and there is a chat of that key."""
        if not self.saved(self._writer.put(lambda _: None)):
            return False
        try:
            return self.row(key) is not None
        except sqlite3.Error:
            return False

    def close(self, timeout: float = 2.0) -> bool:
        """Save what waits; False when something could not be saved within `timeout` seconds."""
        saved = self._writer.close(timeout)
        if saved:
            self._reader.close()
        return saved

    # Writing

    def save_chat(self, chat: Conversation, view: Mapping[str, Any]) -> None:
        """Title, system prompt and what is to be found again; the chat's date becomes now."""
        row = rows.chat_row(chat, time.time(), view)
        self._writer.put(lambda db: sql.put_chat(db, row), f"chat {chat.key}")

    def save_view(self, chat: Conversation, view: Mapping[str, Any]) -> None:
        """System prompt and what is to be found again, without a new date; nothing for a chat that was never saved."""
        key, system, kept = chat.key, chat.system, rows.with_leaf(view, chat)
        self._writer.put(lambda db: sql.put_view(db, key, system, kept), f"view {key}")

    def add_turn(self, chat: Conversation, turn: Turn, view: Mapping[str, Any]) -> bool:
        """A prompt, before anything answers it; False when it is not safe within a quarter of a second.

        A chat that another copy deleted meanwhile comes back with it, also where it was removed since.
        """
        chat_row = rows.chat_row(chat, time.time(), view)
        messages = [rows.turn_row(turn)] if turn.parent is None or self._has(chat.key) else rows.message_rows(chat)

        def change(db: sqlite3.Connection) -> None:
            sql.put_chat(db, chat_row)
            sql.delete(db, chat_row.key, None)
            for message in messages:
                sql.put_message(db, chat_row.key, message)

        return self._writer.put(change).wait(SHOWN_SOON_S)

    def save_reply(self, chat: Conversation, reply: Reply) -> None:
        """A reply as it is now; with its record once it has ended."""
        row, key = rows.reply_row(reply), chat.key
        record = reply.record if reply.ended else None

        def change(db: sqlite3.Connection) -> None:
            sql.put_message(db, key, row)
            if record is not None and record.steps:
                sql.put_trace(db, row.key, pack(columns(record)))

        self._writer.put(change, f"reply {reply.key}")

    def drop_reply(self, reply: Reply) -> None:
        """Take out a reply that came to nothing."""
        key = reply.key
        self._writer.put(lambda db: sql.drop_message(db, key), f"reply {key}")

    def rename(self, key: str, name: str) -> Event:
        return self._writer.put(lambda db: sql.rename(db, key, name))

    def entitle(self, key: str, title: str) -> Event:
        """Give a chat without a title one."""
        return self._writer.put(lambda db: sql.entitle(db, key, title))

    def pin(self, key: str, pinned: bool) -> Event:
        return self._writer.put(lambda db: sql.pin(db, key, pinned))

    def delete(self, key: str) -> Event:
        """Hide a chat; `restore` shows it again, for a day."""
        now = time.time()
        return self._writer.put(lambda db: sql.delete(db, key, now))

    def restore(self, key: str) -> Event:
        return self._writer.put(lambda db: sql.delete(db, key, None))

    def drop_scratch(self, but: str) -> Event:
        """Remove all scratch chats except `but`."""
        return self._writer.put(lambda db: sql.drop_scratch(db, but))

    def insert(self, chat: ChatRow, messages: Iterable[MessageRow], traces: Mapping[str, bytes]) -> tuple[str, Event]:
        """A whole chat from elsewhere. Where its keys are taken it gets new ones; gives its key.

        Nobody allowed anything to tools in it yet.
        """
        listed = list(messages)
        chat = replace(chat, view={name: value for name, value in chat.view.items() if name != "tools"})
        if sql.has_chat(self._reader, chat.key) or self._known(message.key for message in listed):
            chat, listed, traces = rows.renamed(chat, listed, traces)

        def change(db: sqlite3.Connection) -> None:
            sql.put_chat(db, chat)
            for message in listed:
                sql.put_message(db, chat.key, message)
            for key, blob in traces.items():
                sql.put_trace(db, key, blob)

        return chat.key, self._writer.put(change)

    def duplicate(self, key: str) -> tuple[str, Event]:
        """A copy of a saved chat; gives its key.

        Raises:
            NoChat: there is none of that key.
        """
        row = self._row(key)
        name = f"{row.title} (copy)"
        copy = replace(row, name=name, title=name, pinned=False, updated=time.time())
        return self.insert(copy, self.messages(key), self.traces(key))

    # Reading

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
        return rows.merge(chat, self.messages(chat.key), self._record) or renamed

    def chats(self) -> list[ChatEntry]:
        """Pinned ones first, then the latest."""
        return sql.chats(self._reader)

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
        return rows.conversation(row, self.messages(key), self._record), row

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
        return WholeChat(row, tuple(kept.values()), traces)

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
        """Chats whose title or messages hold the words of `text`, best first."""
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

    def _record(self, key: str, start: int) -> Record | None:
        blob = sql.trace(self._reader, key)
        try:
            return record_of(unpack(blob), start) if blob else None
        except ValueError:
            return None
