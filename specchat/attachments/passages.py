"""Passages of long files that fit beside a question, found by its words."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from specchat.attachments.files import Attachment

LONG = 1_500
"""Characters of a passage, unless a page has fewer."""
MOST_WORDS = 64
"""Words of the question that are looked for."""
_PAGE = re.compile(r"(?m)^\[page (\d+)\]\n")
_WORDS = re.compile(r"\w+")
_HEAD = 200
"""Characters that are set aside for the words around passages."""


class Passage(NamedTuple):
    """A part of a file, and where it stands there, such as "page 3"."""

    where: str
    text: str


def fitted(question: str, attachments: Sequence[Attachment], most: int) -> tuple[Attachment, ...]:
    """The attachments, of whose texts the longest are cut to passages where all have over `most` characters."""
    room, rooms = most, dict[int, int]()
    by_size = sorted(range(len(attachments)), key=lambda at: len(attachments[at].text))
    for left, at in zip(range(len(by_size), 0, -1), by_size, strict=True):
        rooms[at] = min(len(attachments[at].text), room // left)
        room -= rooms[at]
    return tuple(
        one if len(one.text) <= rooms[at] else _cut(question, one, rooms[at]) for at, one in enumerate(attachments)
    )


def _cut(question: str, attachment: Attachment, room: int) -> Attachment:
    """The attachment with its beginning, and the passages that have the rarest words of the question."""
    passages = list(_passages(attachment.text))
    found, room = _ranked(question, passages), room - _HEAD
    chosen = set[int]()
    for at in dict.fromkeys((*range(len(passages))[:1], *(found or range(len(passages))))):
        size = len(passages[at].text) + len(passages[at].where) + 8
        if size <= room:
            chosen.add(at)
            room -= size
        elif not found:
            break
    how = "found by the words of the question" if found else "its beginning, as no word of the question is in it"
    parts = [f"[{len(chosen)} of {len(passages)} passages of this file, {how}; cite what stands before each]\n"]
    for at in sorted(chosen):
        where, text = passages[at]
        known = at - 1 in chosen and passages[at - 1].where == where
        parts.append(text if known else f"\n[{where}]\n{text}")
    return replace(attachment, text="".join(parts), whole=len(attachment.text))


def _ranked(question: str, passages: Sequence[Passage]) -> list[int]:
    """The passages with words of the question, best first: more of them, rarer ones (BM25)."""
    words = list(dict.fromkeys(_WORDS.findall(question.casefold())))[:MOST_WORDS]
    if not words:
        return []
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE VIRTUAL TABLE passage USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2')")
        rows = ((at, passage.text.replace("\0", " ")) for at, passage in enumerate(passages))
        db.executemany("INSERT INTO passage (rowid, text) VALUES (?, ?)", rows)
        wanted = " OR ".join(f'"{word}"' for word in words)
        found = db.execute("SELECT rowid FROM passage WHERE passage MATCH ? ORDER BY rank, rowid", (wanted,))
        return [at for (at,) in found]


def _passages(text: str) -> Iterator[Passage]:
    pages = list(_PAGE.finditer(text)) if _PAGE.match(text) else []
    if not pages:
        for first, last, part in _parts(text):
            yield Passage(f"lines {first} to {last}", part)
        return
    for page, following in zip(pages, [*pages[1:], None], strict=True):
        for _, _, part in _parts(text[page.end() : following.start() if following else None]):
            yield Passage(f"page {page[1]}", part)


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    """Parts of about LONG characters that end with lines, and the numbers of their first and last lines."""
    first, part = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if part and len(part) + len(line) > LONG:
            yield first, number - 1, part
            first, part = number, ""
        part += line
        while len(part) > 2 * LONG:  # a line without end
            yield first, number, part[:LONG]
            first, part = number, part[LONG:]
    if part.strip():
        yield first, max(first, text.count("\n")), part
