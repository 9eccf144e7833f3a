"""Saved chats: one SQLite file, or the memory where there can be none."""

import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

from specchat.chat import rows, sql
from specchat.chat.rows import ChatRow, MessageRow, WholeChat
from specchat.chat.schema import opened, opened_in_memory
from specchat.chat.stored import StoredChats
from specchat.chat.trace import columns, pack
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.chat.writer import Writer

FORGET_AFTER_S = 24 * 3600.0
"""Time for which deleted chats can be restored; after it they are removed from the file."""
TICK_S = 0.02
"""Seconds between looks for a failure of the database while a change waits."""
SHOWN_SOON_S = 0.25
"""Seconds that a prompt may wait for the disk before it shows as sent."""
CLOSE_S = 2.0
"""Seconds that leaving may wait for the disk."""


class Store(StoredChats):
    """Saved chats, read at once and written in the writer's thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Open or make the file `path`; None keeps chats in memory only.

        Raises:
            StoreError: the file cannot be used; it stays as it is.
        """
        self.path = path
        if path is None:
            reading = writing = opened_in_memory()
        else:
            reading, writing = opened(path)
        super().__init__(reading)
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

    def close(self, timeout: float | None = None) -> bool:
        """Save what waits; False when something could not be saved within `timeout` seconds, `CLOSE_S` by default."""
        saved = self._writer.close(CLOSE_S if timeout is None else timeout)
        if saved:
            self._reader.close()
        return saved

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
        new = [turn] if turn.parent is None or self._has(chat.key) else list(chat.every_turn())
        messages = [rows.turn_row(turn)] if new == [turn] else rows.message_rows(chat)
        pictures = [one.picture for each in new for one in each.attachments if one.picture is not None]
        loaded = [(picture.digest, data) for picture in pictures if (data := picture.load()) is not None]

        def change(db: sqlite3.Connection) -> None:
            sql.put_chat(db, chat_row)
            sql.delete(db, chat_row.key, None)
            for picture in loaded:
                sql.put_picture(db, *picture)
            for message in messages:
                sql.put_message(db, chat_row.key, message)

        return self._saved_soon(self._writer.put(change))

    def _saved_soon(self, change: Event) -> bool:
        return change.wait(SHOWN_SOON_S)

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

    def tag(self, key: str, tags: Iterable[str]) -> Event:
        """Give a chat these tags and no others."""
        chosen = tuple(tags)
        return self._writer.put(lambda db: sql.tag(db, key, chosen))

    def delete(self, key: str) -> Event:
        """Hide a chat; `restore` shows it again, for a day."""
        now = time.time()
        return self._writer.put(lambda db: sql.delete(db, key, now))

    def restore(self, key: str) -> Event:
        return self._writer.put(lambda db: sql.delete(db, key, None))

    def drop_scratch(self, but: str) -> Event:
        """Remove all scratch chats except `but`."""
        return self._writer.put(lambda db: sql.drop_scratch(db, but))

    def insert(
        self,
        chat: ChatRow,
        messages: Iterable[MessageRow],
        traces: Mapping[str, bytes],
        pictures: Mapping[str, bytes] = MappingProxyType({}),
    ) -> tuple[str, Event]:
        """A whole chat from elsewhere. Where its keys are taken it gets new ones; gives its key.

        Nobody allowed anything to tools in it yet.
        """
        listed = list(messages)
        chat = _without_tools(chat)
        if sql.has_chat(self._reader, chat.key) or self._known(message.key for message in listed):
            chat, listed, traces = rows.renamed(chat, listed, traces)

        def change(db: sqlite3.Connection) -> None:
            sql.put_chat(db, chat)
            for message in listed:
                sql.put_message(db, chat.key, message)
            for key, blob in traces.items():
                sql.put_trace(db, key, blob)
            for picture in pictures.items():
                sql.put_picture(db, *picture)

        return chat.key, self._writer.put(change)

    def take(self, whole: WholeChat, traces: Mapping[str, bytes], *, head: bool) -> Event:
        """Messages and pictures of a chat elsewhere that are not here; with its title, pin and tags if `head`."""
        chat = _without_tools(whole.row)

        def change(db: sqlite3.Connection) -> None:
            if not sql.has_chat(db, chat.key):
                sql.put_chat(db, chat)
            sql.put_head(db, chat, whole=head)
            writing = {row.key for row in sql.messages(db, chat.key) if row.state == "writing"}
            for picture in whole.pictures.items():
                sql.put_picture(db, *picture)
            for message in whole.messages:
                finished = message.key in writing and message.state != "writing"
                if finished or not sql.has_message(db, message.key):
                    sql.put_message(db, chat.key, message)
                    if message.key in traces:
                        sql.put_trace(db, message.key, traces[message.key])

        return self._writer.put(change)

    def duplicate(self, key: str) -> tuple[str, Event]:
        """A copy of a saved chat; gives its key.

        Raises:
            NoChat: there is none of that key.
        """
        row = self._row(key)
        name = f"{row.title} (copy)"
        copy = replace(row, name=name, title=name, pinned=False, updated=time.time())
        return self.insert(copy, self.messages(key), self.traces(key))


def _without_tools(chat: ChatRow) -> ChatRow:
    """A chat from elsewhere, in which nobody allowed anything to tools here."""
    return replace(chat, view={name: value for name, value in chat.view.items() if name != "tools"})
