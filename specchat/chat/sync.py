"""Chats in a folder that other machines have too: a file a chat, and one for each that was deleted."""

import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from specchat import private
from specchat.chat.exporting import export
from specchat.chat.files import ChatFileError
from specchat.chat.importing import read_chats
from specchat.chat.rows import WholeChat
from specchat.chat.schema import StoreError, in_words
from specchat.chat.store import Store
from specchat.chat.stored import NoChat
from specchat.chat.tombstones import Head, Tombstone, found_in, head_of, path_of, put
from specchat.chat.trace import pack
from specchat.clean import one_line
from specchat.figures import of


@dataclass
class Synced:
    """The outcome: chats that came from the folder or grew by it, files that were written, and trouble in sentences.

    `deleted` has the keys of chats that were deleted elsewhere, and here for that.
    """

    received: int = 0
    sent: int = 0
    deleted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """In words."""
        gone = f", {of(len(self.deleted), 'chat')} deleted" if self.deleted else ""
        said = f"{of(self.received, 'chat')} received, {of(self.sent, 'chat')} written{gone}"
        return "; ".join([said, *self.problems])


@dataclass
class _Known:
    """The folder and the chats as they were after the last time: times of files by name, others by keys of chats."""

    files: dict[str, int] = field(default_factory=dict)
    chats: dict[str, Head] = field(default_factory=dict)
    deleted: dict[str, Tombstone] = field(default_factory=dict)


def sync(store: Store, folder: Path, state: Path) -> Synced:
    """Take what is new in the files of `folder`, and write the chats that changed here.

    Messages of both sides stay, as branches where they follow the same one. Title, pin and tags are those of the side
    that changed them. A chat that was deleted on one side is deleted on the other, unless that has something of it
    which the deleted one had not: then it comes back. `state` is the file with what is known of the last time.

    Raises:
        StoreError: the chats cannot be read or saved.
        ChatFileError: the folder or `state` cannot be used.
    """
    known, outcome = _read(state, folder), Synced()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for key, tombstone in found_in(folder).items():
            _bury(store, key, tombstone, folder, known, outcome)
        for path in sorted(folder.glob("*.json")):
            _receive(store, path, known, outcome)
        for entry in store.deleted():
            _tell(store, entry.key, folder, known)
        for entry in store.chats():
            _send(store, entry.key, folder, known, outcome)
        deleted = {key: tombstone.data for key, tombstone in known.deleted.items()}
        data = {"folder": str(folder), "files": known.files, "chats": known.chats, "deleted": deleted}
        private.replace(state, json.dumps(data))
    except sqlite3.Error as error:
        raise StoreError(in_words(error, store.path)) from None
    except OSError as error:
        raise ChatFileError(f"Chats cannot be synced with {one_line(str(folder))} ({error.strerror}).") from None
    return outcome


def _read(state: Path, folder: Path) -> _Known:
    """The state of the last time with this folder; nothing is known of another one."""
    try:
        data = json.loads(state.read_text(encoding="utf-8"))
        deleted = {key: Tombstone.read(one) for key, one in data.get("deleted", {}).items()}
        return _Known(dict(data["files"]), dict(data["chats"]), deleted) if data["folder"] == str(folder) else _Known()
    except (OSError, ValueError, KeyError, TypeError):
        return _Known()


def _bury(store: Store, key: str, tombstone: Tombstone, folder: Path, known: _Known, outcome: Synced) -> None:
    """Delete a chat that was deleted elsewhere; one that was changed or restored here goes to the folder again."""
    row, restored = store.row(key), key in known.deleted
    if row is None:
        known.deleted[key] = tombstone
    elif restored or not tombstone.covers(head_of(row), (message.key for message in store.messages(key))):
        path_of(folder, key).unlink(missing_ok=True)
        known.deleted.pop(key, None)
    else:
        if not store.saved(store.delete(key)):
            raise StoreError(store.problem)
        known.deleted[key] = tombstone
        known.chats.pop(key, None)
        known.files.pop(f"{key}.json", None)
        outcome.deleted.append(key)


def _tell(store: Store, key: str, folder: Path, known: _Known) -> None:
    """Have a chat that was deleted here be deleted elsewhere too; its files in the folder go."""
    if key not in known.chats or key in known.deleted:
        return
    known.deleted[key] = Tombstone.of(known.chats.pop(key), (message.key for message in store.messages(key)))
    put(folder, key, known.deleted[key])
    for name in [name for name in known.files if name.startswith(key)]:
        (folder / name).unlink(missing_ok=True)
        del known.files[name]


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
        outcome.received += _take(store, chat, path.parent, known)
        row = store.row(chat.row.key)
        if (
            row is not None
            and path.stem == row.key
            and head_of(row) == head_of(chat.row)
            and (_held(store, chat) == {message.key for message in chat.messages})
        ):
            known.chats[row.key] = head_of(row)


def _take(store: Store, chat: WholeChat, folder: Path, known: _Known) -> bool:
    """Take in a chat; whether there was anything new in it."""
    key, row, theirs = chat.row.key, store.row(chat.row.key), head_of(chat.row)
    if row is None:
        if _stays_deleted(store, chat, folder, known):
            return False
        head = True
        known.deleted.pop(key, None)
    else:
        ours, before = head_of(row), known.chats.get(row.key)
        newer = ours[1:] == before[1:] if before else chat.row.updated > row.updated
        head = newer and ours[1:] != theirs[1:]
        if not head and not {message.key for message in chat.messages} - _held(store, chat):
            return False
    traces = {key: pack(columns) for key, columns in chat.traces.items()}
    store.take(chat, traces, head=head)
    if not store.saved(store.restore(key)):
        raise StoreError(store.problem)
    return True


def _stays_deleted(store: Store, chat: WholeChat, folder: Path, known: _Known) -> bool:
    """True for a chat that was deleted, and has nothing new; where its tombstone is gone, it was restored elsewhere."""
    key, head, messages = chat.row.key, head_of(chat.row), [message.key for message in chat.messages]
    if (tombstone := known.deleted.get(key)) is not None:
        return tombstone.covers(head, messages) and path_of(folder, key).exists()
    if key in {entry.key for entry in store.deleted()}:
        here = [message.key for message in store.messages(key)]
        return Tombstone.of(known.chats.get(key, head), here).covers(head, messages)
    return key in known.chats


def _held(store: Store, chat: WholeChat) -> set[str]:
    """The keys of messages that are here and complete."""
    return {message.key for message in store.messages(chat.row.key) if message.state != "writing"}


def _send(store: Store, key: str, folder: Path, known: _Known, outcome: Synced) -> None:
    """Write a chat that is not in the folder as it is here."""
    row, path = store.row(key), folder / f"{key}.json"
    if row is None or (known.chats.get(key) == head_of(row) and path.exists()):
        return
    try:
        text = "".join(export(store, [key], "json"))
    except NoChat:
        return
    private.replace(path, text)
    known.chats[key], known.files[path.name] = head_of(row), path.stat().st_mtime_ns
    outcome.sent += 1
