"""Full-text search over titles and messages."""

import json
import re
import sqlite3
import unicodedata
from dataclasses import dataclass
from typing import Literal

from specchat.chat.sql import LISTED, as_text, as_time, tagged
from specchat.chat.tags import asked_for
from specchat.clean import clean, one_line

_OPEN, _CLOSE = "\x02", "\x03"
_WORDS = re.compile(r"\w+")
_UNFIT = re.compile("[\x00\ud800-\udfff]")
"""Characters that SQLite cannot look for: the end of a text, and halves of characters."""
_SPACELESS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
)
"""Scripts without spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_LONGEST = 10_000
"""Characters that are looked for as they are written; SQLite takes no more than 50,000 bytes."""


@dataclass(frozen=True)
class Hit:
    """A chat that was found, by its title (`message` None) or by a message.

    `snippet` is one line around the find, whose words are at `found` as (start, end).
    """

    chat: str
    title: str
    updated: float
    message: str | None
    role: Literal["title", "user", "assistant"]
    snippet: str
    found: tuple[tuple[int, int], ...] = ()


_CHAT = f"{as_text('chat.key')}, ifnull({as_text('chat.title')}, ''), {as_time('chat.updated')}"
_MESSAGE = f"{_CHAT}, {as_text('message.key')}, {as_text('role')}"
_FOUND = f"{LISTED} AND (? IS NULL OR chat.key IN (SELECT value FROM json_each(?)))"
"""Condition for the chats that are searched: all, or those whose keys are in a JSON array, which stands twice."""
_TITLES = f"""
    SELECT {_CHAT}, NULL, 'title', highlight(chat_words, 0, ?, ?)
    FROM chat_words JOIN chat ON chat.id = chat_words.rowid
    WHERE chat_words MATCH ? AND {_FOUND} ORDER BY rank LIMIT ?
"""
_MESSAGES = f"""
    SELECT {_MESSAGE}, snippet(message_words, 0, ?, ?, '…', 14)
    FROM message_words JOIN message ON message.id = message_words.rowid JOIN chat ON chat.key = message.chat
    WHERE message_words MATCH ? AND {_FOUND} ORDER BY rank * (CASE role WHEN 'user' THEN 2 ELSE 1 END) LIMIT ?
"""
_PLAIN_TITLES = f"""
    SELECT {_CHAT}, NULL, 'title', ifnull({as_text("title")}, '') FROM chat
    WHERE title LIKE ? ESCAPE '\\' AND {_FOUND} ORDER BY updated DESC LIMIT ?
"""
_PLAIN = f"""
    SELECT {_MESSAGE},
        substr({as_text("text")}, max(instr(lower(text), lower(?)) - 30, 1), 120)
    FROM message JOIN chat ON chat.key = message.chat
    WHERE text LIKE ? ESCAPE '\\' AND {_FOUND} ORDER BY message.id DESC LIMIT ?
"""
_TAGGED = f"""
    SELECT {_CHAT}, NULL, 'title', ifnull({as_text("title")}, '') FROM chat
    WHERE {_FOUND} ORDER BY updated DESC LIMIT ?
"""


def find(db: sqlite3.Connection, text: str, limit: int) -> list[Hit]:
    """Titles first, then messages by rank, prompts above replies. The last word may be unfinished.

    Scripts without spaces are also found as they are written, and so is what has no words or none that are found. Words
    such as `#work` are tags that the chats must have.
    """
    wanted, text = asked_for(text)
    within = json.dumps(tagged(db, wanted)) if wanted else None
    if wanted and not text.strip():
        return [_hit(*row) for row in db.execute(_TAGGED, (within, within, limit))]
    text = unicodedata.normalize("NFC", _UNFIT.sub(" ", text))
    query, written = match_expression(text), text.strip()
    hits: list[Hit] = []
    if query:
        for statement in (_TITLES, _MESSAGES):
            rows = db.execute(statement, (_OPEN, _CLOSE, query, within, within, limit)).fetchall()
            hits += [_hit(*row) for row in rows]
    if written and len(written) <= _LONGEST and (not hits or _SPACELESS.search(written)):
        known = {(hit.chat, hit.message) for hit in hits}
        pattern = "%" + re.sub(r"([\\%_])", r"\\\1", written) + "%"
        rows = db.execute(_PLAIN_TITLES, (pattern, within, within, limit)).fetchall()
        rows += db.execute(_PLAIN, (written, pattern, within, within, limit)).fetchall()
        hits += [hit for hit in (_hit(*row) for row in rows) if (hit.chat, hit.message) not in known]
        hits.sort(key=lambda hit: hit.message is not None)
    return hits[:limit]


def match_expression(text: str) -> str:
    """The words of `text` for FTS5, all of which must be there; none of its operators work."""
    words = _WORDS.findall(text)
    if not words:
        return ""
    last = "" if text[-1:].isspace() else "*"
    return " ".join(f'"{word}"' for word in words) + last


def _hit(chat: str, title: str, updated: float, message: str | None, role: str, marked: str) -> Hit:
    found: list[tuple[int, int]] = []
    parts: list[str] = []
    length = 0
    for index, part in enumerate(re.split(f"[{_OPEN}{_CLOSE}]", " ".join(marked.split()))):
        shown = clean(part)
        if index % 2:
            found.append((length, length + len(shown)))
        parts.append(shown)
        length += len(shown)
    known: Literal["title", "user", "assistant"] = (
        "title" if role == "title" else "user" if role == "user" else "assistant"
    )
    return Hit(chat, one_line(title, 80), updated, message, known, "".join(parts), tuple(found))
