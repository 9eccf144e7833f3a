"""The statements behind the store."""

import json
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specchat.chat.preview import preview
from specchat.chat.rows import ChatEntry, ChatRow, MessageRow
from specchat.chat.tags import has_all, tags_in

_LONE = re.compile("[\ud800-\udfff]")
"""Halves of characters, which UTF-8 cannot hold: from arguments and file names of other encodings."""
LATEST = 250_000_000_000.0
"""Seconds since 1970, in the year 9892: later dates cannot be shown."""


def as_text(column: str) -> str:
    """The column of a statement, as text also where the file is damaged."""
    return f"CAST({column} AS TEXT)"


def as_time(column: str) -> str:
    """The same of a date; 0 where it is none."""
    return f"max(0.0, min({LATEST}, ifnull(CAST({column} AS REAL), 0.0)))"


_SCRATCH = "ifnull(json_extract(CASE WHEN json_valid(view) THEN view END, '$.scratch'), 0)"
LISTED = f"deleted IS NULL AND NOT {_SCRATCH}"
"""Condition for chats in lists and searches: neither deleted nor scratch chats."""
_ENTRIES = f"""
    SELECT {as_text("key")}, ifnull({as_text("title")}, ''), pinned, {as_time("updated")},
        (SELECT count(*) FROM message WHERE message.chat = chat.key),
        ifnull((SELECT substr({as_text("text")}, 1, 200) FROM message WHERE message.chat = chat.key
            ORDER BY id DESC LIMIT 1), ''),
        ifnull({as_text("tags")}, '')
    FROM chat
"""
_CHAT = f"""
    SELECT {", ".join(f"ifnull({as_text(column)}, '')" for column in ("name", "title", "system", "view", "tags"))},
        pinned, {as_time("created")}, {as_time("updated")}
    FROM chat WHERE key = ? AND deleted IS NULL
"""
_MESSAGES_OF = f"""
    SELECT {", ".join(as_text(column) for column in ("key", "parent", "role"))}, ifnull({as_text("text")}, ''),
        {as_time("created")}, {as_text("state")}, ifnull({as_text("meta")}, '')
    FROM message WHERE chat = ? ORDER BY id
"""
_REPLIES = f"""
    SELECT {as_text("message.chat")}, ifnull({as_text("text")}, '') FROM message
    JOIN chat ON chat.key = message.chat WHERE role = 'assistant' AND {LISTED} ORDER BY message.id DESC
"""
_REPLIES_OF = f"""
    SELECT ifnull({as_text("text")}, '') FROM message WHERE chat = ? AND role = 'assistant' ORDER BY id DESC
"""
_PICTURES = """
    SELECT json_extract(file.value, '$.picture') FROM message,
        json_each(CASE WHEN json_valid(meta) THEN meta ELSE '{}' END, '$.attachments') AS file
    WHERE instr(meta, '"picture"') > 0
"""
"""Digests of the pictures of messages."""
ABANDONED_S = 10.0
"""A reply that says it is being written, and was not for this long, was interrupted."""


def put_chat(db: sqlite3.Connection, row: ChatRow) -> None:
    """Add or change a chat. What `pin`, `tag` and `rename` change stays: another copy may have done that meanwhile."""
    db.execute(
        "INSERT INTO chat (key, name, title, system, pinned, created, updated, view, tags) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET system = excluded.system, updated = excluded.updated, view = excluded.view, "
        "title = CASE WHEN name = '' THEN excluded.title ELSE title END",
        (
            row.key,
            whole(row.name),
            whole(row.title),
            whole(row.system),
            row.pinned,
            row.created,
            row.updated,
            json.dumps(dict(row.view)),
            " ".join(row.tags),
        ),
    )


def put_head(db: sqlite3.Connection, row: ChatRow, *, whole: bool) -> None:
    """The date of a chat where it is later, and the `whole` of title, pin and tags."""
    db.execute("UPDATE chat SET updated = max(updated, ?) WHERE key = ?", (row.updated, row.key))
    if whole:
        db.execute("UPDATE chat SET name = ?, title = ? WHERE key = ?", (row.name, row.title, row.key))
        pin(db, row.key, row.pinned)
        tag(db, row.key, row.tags)


def put_view(db: sqlite3.Connection, key: str, system: str, view: Mapping[str, Any]) -> None:
    db.execute("UPDATE chat SET system = ?, view = ? WHERE key = ?", (system, json.dumps(view), key))


def put_message(db: sqlite3.Connection, chat: str, row: MessageRow) -> None:
    db.execute(
        "INSERT INTO message (key, chat, parent, role, text, created, state, flushed, meta) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
        "text = excluded.text, state = excluded.state, flushed = excluded.flushed, meta = excluded.meta",
        (row.key, chat, row.parent, row.role, whole(row.text), row.created, row.state, time.time(), row.meta),
    )


def whole(text: str) -> str:
    """`text` as the database holds it."""
    return _LONE.sub("\ufffd", text)


def put_trace(db: sqlite3.Connection, key: str, blob: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO trace (message, steps) VALUES (?, ?)", (key, blob))


def put_picture(db: sqlite3.Connection, digest: str, data: bytes) -> None:
    db.execute("INSERT OR IGNORE INTO picture (digest, data) VALUES (?, ?)", (digest, data))


def picture(db: sqlite3.Connection, digest: str) -> bytes | None:
    found = db.execute("SELECT CAST(data AS BLOB) FROM picture WHERE digest = ?", (digest,)).fetchone()
    return found[0] if found else None


def pictures(db: sqlite3.Connection, key: str) -> dict[str, bytes]:
    """The pictures of a chat by their digests."""
    rows = db.execute(
        f"SELECT digest, CAST(data AS BLOB) FROM picture WHERE digest IN ({_PICTURES} AND message.chat = ?)", (key,)
    )
    return dict(rows.fetchall())


def drop_message(db: sqlite3.Connection, key: str) -> None:
    db.execute("DELETE FROM message WHERE key = ?", (key,))


def rename(db: sqlite3.Connection, key: str, name: str) -> None:
    db.execute("UPDATE chat SET name = ?, title = ? WHERE key = ?", (whole(name), whole(name), key))


def entitle(db: sqlite3.Connection, key: str, title: str) -> None:
    db.execute("UPDATE chat SET title = ? WHERE key = ? AND title = ''", (whole(title), key))


def pin(db: sqlite3.Connection, key: str, pinned: bool) -> None:
    db.execute("UPDATE chat SET pinned = ? WHERE key = ?", (pinned, key))


def tag(db: sqlite3.Connection, key: str, tags: Iterable[str]) -> None:
    db.execute("UPDATE chat SET tags = ? WHERE key = ?", (whole(" ".join(tags)), key))


def delete(db: sqlite3.Connection, key: str, at: float | None) -> None:
    db.execute("UPDATE chat SET deleted = ? WHERE key = ?", (at, key))


def tidy(db: sqlite3.Connection, deleted_before: float) -> None:
    """Remove chats deleted long ago, pictures of none, and close replies that a killed process left open."""
    db.execute("DELETE FROM chat WHERE deleted < ?", (deleted_before,))
    if db.execute("SELECT 1 FROM picture LIMIT 1").fetchone():
        db.execute(f"DELETE FROM picture WHERE digest NOT IN (SELECT ifnull(digest, '') FROM ({_PICTURES}))")
    db.execute(
        "UPDATE message SET state = 'failed', "
        "meta = json_set(CASE WHEN json_valid(meta) THEN meta ELSE '{}' END, '$.error', ?) "
        "WHERE state = 'writing' AND flushed < ?",
        ("interrupted: specchat ended while this was being written", time.time() - ABANDONED_S),
    )


def chats(db: sqlite3.Connection) -> list[ChatEntry]:
    """Pinned ones first, then the latest."""
    return _entries(db, f"{LISTED} ORDER BY pinned DESC, updated DESC")


def tagged(db: sqlite3.Connection, wanted: Iterable[str]) -> list[str]:
    """The keys of chats that have all tags `wanted`."""
    rows = db.execute(f"SELECT {as_text('key')}, ifnull({as_text('tags')}, '') FROM chat WHERE tags != '' AND {LISTED}")
    wanted = tuple(wanted)
    return [key for key, tags in rows if has_all(tags_in(tags), wanted)]


def scratch(db: sqlite3.Connection) -> list[ChatEntry]:
    """Scratch chats, the latest first."""
    return _entries(db, f"deleted IS NULL AND {_SCRATCH} ORDER BY updated DESC")


def drop_scratch(db: sqlite3.Connection, but: str) -> None:
    db.execute(f"DELETE FROM chat WHERE {_SCRATCH} AND key != ?", (but,))


def deleted(db: sqlite3.Connection) -> list[ChatEntry]:
    """Deleted chats that can be restored, the latest deleted first."""
    return _entries(db, "deleted IS NOT NULL ORDER BY deleted DESC")


def _entries(db: sqlite3.Connection, which: str) -> list[ChatEntry]:
    return [
        ChatEntry(key, title, bool(pinned), updated, count, preview(text), tags_in(tags))
        for key, title, pinned, updated, count, text, tags in db.execute(f"{_ENTRIES} WHERE {which}")
    ]


def has_chat(db: sqlite3.Connection, key: str) -> bool:
    """True if the key is taken, also by a deleted chat."""
    return db.execute("SELECT 1 FROM chat WHERE key = ?", (key,)).fetchone() is not None


def chat(db: sqlite3.Connection, key: str) -> ChatRow | None:
    found = db.execute(_CHAT, (key,)).fetchone()
    if found is None:
        return None
    name, title, system, view, tags, pinned, created, updated = found
    try:
        data = json.loads(view)
    except ValueError:
        data = {}
    data = data if isinstance(data, dict) else {}
    return ChatRow(key, name, title, system, bool(pinned), tags_in(tags), created, updated, data)


def messages(db: sqlite3.Connection, key: str) -> list[MessageRow]:
    return [MessageRow(*row) for row in db.execute(_MESSAGES_OF, (key,))]


def ended(db: sqlite3.Connection, chat: str) -> set[str]:
    """The keys of a chat's messages but of replies that are being written."""
    return {
        key
        for (key,) in db.execute(f"SELECT {as_text('key')} FROM message WHERE chat = ? AND state != 'writing'", (chat,))
    }


def replies(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Chat and text of every reply in chats that are not deleted, the newest first."""
    yield from db.execute(_REPLIES)


def replies_of(db: sqlite3.Connection, chat: str) -> list[str]:
    return [text for (text,) in db.execute(_REPLIES_OF, (chat,))]


def has_message(db: sqlite3.Connection, key: str) -> bool:
    return db.execute("SELECT 1 FROM message WHERE key = ?", (key,)).fetchone() is not None


def trace(db: sqlite3.Connection, key: str) -> bytes | None:
    found = db.execute("SELECT CAST(steps AS BLOB) FROM trace WHERE message = ?", (key,)).fetchone()
    return found[0] if found else None


def traces(db: sqlite3.Connection, key: str) -> dict[str, bytes]:
    rows = db.execute(
        f"SELECT {as_text('trace.message')}, CAST(steps AS BLOB) FROM trace "
        "JOIN message ON message.key = trace.message WHERE chat = ?",
        (key,),
    )
    return dict(rows.fetchall())
