"""Chats in a folder that other machines have too: a file a chat. Nothing is deleted here or there."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from specchat import private
from specchat.chat.exporting import export
from specchat.chat.files import ChatFileError
from specchat.chat.importing import read_chats
from specchat.chat.rows import ChatRow, WholeChat
from specchat.chat.schema import StoreError, in_words
from specchat.chat.store import Store
from specchat.chat.stored import NoChat
from specchat.chat.trace import pack
from specchat.clean import one_line
from specchat.figures import of

Head = list[object]
"""Date, name, pin and tags of a chat."""


@dataclass
class Synced:
    """The outcome: chats that came from the folder or grew by it, files that were written, and trouble in sentences."""

    received: int = 0
    sent: int = 0
    problems: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """In words."""
        return "; ".join([f"{of(self.received, 'chat')} received, {of(self.sent, 'chat')} written", *self.problems])


@dataclass
class _Known:
    """The folder and the chats as they were after the last time: times of files by name, heads of chats by key."""

    files: dict[str, int] = field(default_factory=dict)
    chats: dict[str, Head] = field(default_factory=dict)


def sync(store: Store, folder: Path, state: Path) -> Synced:
    """Take what is new in the files of `folder`, and write the chats that changed here.

    Messages of both sides stay, as branches where they follow the same one. Title, pin and tags are those of the side
    that changed them; a chat that was deleted on one side stays on the other. `state` is the file with what is known
    of the last time.

    Raises:
        StoreError: the chats cannot be read or saved.
        ChatFileError: the folder or `state` cannot be used.
    """
    known, outcome = _read(state, folder), Synced()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            _receive(store, path, known, outcome)
        for entry in store.chats():
            _send(store, entry.key, folder, known, outcome)
        private.replace(state, json.dumps({"folder": str(folder), "files": known.files, "chats": known.chats}))
    except sqlite3.Error as error:
        raise StoreError(in_words(error, store.path)) from None
    except OSError as error:
        raise ChatFileError(f"Chats cannot be synced with {one_line(str(folder))} ({error.strerror}).") from None
    return outcome


def _read(state: Path, folder: Path) -> _Known:
    """The state of the last time with this folder; nothing is known of another one."""
    try:
        data = json.loads(state.read_text(encoding="utf-8"))
        return _Known(dict(data["files"]), dict(data["chats"])) if data["folder"] == str(folder) else _Known()
    except (OSError, ValueError, KeyError, TypeError):
        return _Known()


def _receive(store: Store, path: Path, known: _Known, outcome: Synced) -> None:
    """Take in a file that changed since the last time, also a copy that a program made of a conflict."""
    time = path.stat().st_mtime_ns
    if known.files.get(path.name) == time:
        return
    try:
        chats, _ = read_chats(path, "json")
    except ChatFileError as error:
        outcome.problems.append(str(error))
        return
    known.files[path.name] = time
    for chat in chats:
        outcome.received += _take(store, chat, known.chats)
        row = store.row(chat.row.key)
        if (
            row is not None
            and path.stem == row.key
            and _head(row) == _head(chat.row)
            and (_held(store, chat) == {message.key for message in chat.messages})
        ):
            known.chats[row.key] = _head(row)


def _take(store: Store, chat: WholeChat, known: Mapping[str, Head]) -> bool:
    """Take in a chat; whether there was anything new in it."""
    row, theirs = store.row(chat.row.key), _head(chat.row)
    if row is None:
        if chat.row.key in known or chat.row.key in {entry.key for entry in store.deleted()}:
            return False
        head = True
    else:
        ours, before = _head(row), known.get(row.key)
        newer = ours[1:] == before[1:] if before else chat.row.updated > row.updated
        head = newer and ours[1:] != theirs[1:]
        if not head and not {message.key for message in chat.messages} - _held(store, chat):
            return False
    traces = {key: pack(columns) for key, columns in chat.traces.items()}
    if not store.saved(store.take(chat, traces, head=head)):
        raise StoreError(store.problem)
    return True


def _held(store: Store, chat: WholeChat) -> set[str]:
    """The keys of messages that are here and complete."""
    return {message.key for message in store.messages(chat.row.key) if message.state != "writing"}


def _send(store: Store, key: str, folder: Path, known: _Known, outcome: Synced) -> None:
    """Write a chat that is not in the folder as it is here."""
    row, path = store.row(key), folder / f"{key}.json"
    if row is None or (known.chats.get(key) == _head(row) and path.exists()):
        return
    try:
        text = "".join(export(store, [key], "json"))
    except NoChat:
        return
    private.replace(path, text)
    known.chats[key], known.files[path.name] = _head(row), path.stat().st_mtime_ns
    outcome.sent += 1


def _head(row: ChatRow) -> Head:
    return [row.updated, row.name, row.pinned, list(row.tags)]
