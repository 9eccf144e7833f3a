"""Chats from files: which format a file has, and what of it is new."""

import json
import math
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from specchat.chat import chatgpt, markdown
from specchat.chat.files import ChatFileError, read
from specchat.chat.json_format import FORMAT, from_json
from specchat.chat.rows import WholeChat
from specchat.chat.schema import StoreError, in_words
from specchat.chat.sql import whole
from specchat.chat.store import Store
from specchat.chat.titles import make_title
from specchat.chat.trace import pack
from specchat.clean import clean, one_line

Format = Literal["json", "md", "chatgpt"]
FORMATS: tuple[Format, ...] = ("json", "md", "chatgpt")
MARKDOWN = (".md", ".markdown")


@dataclass
class Imported:
    """The outcome of a file: the keys of the chats that were added, how many were there already, and remarks."""

    keys: list[str] = field(default_factory=list)
    known: int = 0
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """In words."""
        count = len(self.keys)
        parts = [f"{count} {'chat' if count == 1 else 'chats'} imported"]
        if self.known:
            parts.append(f"{self.known} already here and left as {'it is' if self.known == 1 else 'they are'}")
        return "; ".join([*parts, *self.notes])


def import_file(store: Store, path: Path, format: Format | None = None) -> Imported:
    """Add the chats of a file; its format is found out where none is given. All are read before the first is added.

    Raises:
        ChatFileError: the file cannot be used.
        StoreError: the chats cannot be saved, or those that are there not be read.
    """
    chats, notes = read_chats(path, format)
    name = one_line(str(path))
    imported = Imported(notes=notes)
    try:
        for chat in chats:
            if _is_known(store, chat):
                imported.known += 1
                if chat.row.title and not store.saved(store.entitle(chat.row.key, chat.row.title)):
                    raise StoreError(store.problem)
                continue
            traces = {key: pack(columns) for key, columns in chat.traces.items()}
            key, done = store.insert(chat.row, chat.messages, traces, chat.pictures)
            if not store.saved(done) or store.row(key) is None:
                why = store.problem or "The chats' database does not take it."
                raise StoreError(f"{name} was imported up to chat {len(imported.keys)} of {len(chats)}. {why}")
            imported.keys.append(key)
    except sqlite3.Error as error:
        raise StoreError(in_words(error, store.path)) from None
    return imported


def read_chats(path: Path, format: Format | None = None) -> tuple[list[WholeChat], tuple[str, ...]]:
    """The chats of a file, and remarks on what was left out.

    Raises:
        ChatFileError: the file cannot be used; the message names it, the place in it, and what to do.
    """
    name, data = one_line(str(path)), read(path)
    if chatgpt.is_zip(data):
        if format not in (None, "chatgpt"):
            raise ChatFileError(f"{name} is a zip file, which only exports of ChatGPT are.")
        return _of_chatgpt(chatgpt.unzip(data, name), name)
    text = _text(data, name)
    looks_like_json = text.lstrip()[:1] in ("{", "[") and path.suffix.lower() not in MARKDOWN
    if format == "md" or (format is None and not looks_like_json):
        return [markdown.from_markdown(text, name, time.time())], ()
    found = _json(text, name)
    if format == "chatgpt" or (format is None and not (isinstance(found, dict) and "format" in found)):
        if format is None and _of_another_program(found):
            raise ChatFileError(
                f"{name} is neither an export of specchat nor ChatGPT's conversations.json. Chats of other programs "
                'can come as Markdown, with headings such as "## You" and "## Assistant".'
            )
        return _usable(chatgpt.from_chatgpt(found, name))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ChatFileError(f'{name} is no export of specchat: its "format" is not "{FORMAT}".')
    return from_json(found, name), ()


def _of_another_program(found: object) -> bool:
    """True for JSON objects none of which has what each conversation of ChatGPT has."""
    each = found if isinstance(found, list) else [found]
    return all(isinstance(one, dict) and "mapping" not in one for one in each) and bool(each)


def _of_chatgpt(parts: Iterable[bytes], name: str) -> tuple[list[WholeChat], tuple[str, ...]]:
    whole = chatgpt.Read()
    for part in parts:
        result = chatgpt.from_chatgpt(_json(_text(part, name), name), name)
        whole.chats += result.chats
        whole.left_out += result.left_out
        whole.problem = whole.problem or result.problem
    return _usable(whole)


def _usable(read: chatgpt.Read) -> tuple[list[WholeChat], tuple[str, ...]]:
    if read.problem and not read.chats:
        raise ChatFileError(read.problem)
    return [_titled(chat) for chat in read.chats], read.notes


def _titled(chat: WholeChat) -> WholeChat:
    """A chat without a title gets one made from its first message that says something."""
    if chat.row.title.strip():
        return chat
    prompt, reply = (
        next((clean(message.text) for message in chat.messages if message.role == role and message.text.strip()), "")
        for role in ("user", "assistant")
    )
    return replace(chat, row=replace(chat.row, title=make_title(prompt, reply)))


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ChatFileError(f"{name} is not UTF-8 text (byte {error.start}).") from None


def _json(text: str, name: str) -> object:
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise ChatFileError(f"{name} is damaged or not complete ({position}: {one_line(error.msg)}).") from None
    except RecursionError:
        raise ChatFileError(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise ChatFileError(f"{name} holds a number that cannot be used ({one_line(str(error), 60)}).") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _is_known(store: Store, chat: WholeChat) -> bool:
    """True if the store has the chat with the same messages; its title and what is shown of it may have changed."""
    try:
        return _content(store.whole(chat.row.key)) == _content(chat)
    except KeyError:
        return False


def _content(chat: WholeChat) -> tuple[Any, ...]:
    messages = [
        (
            message.key,
            message.parent,
            message.role,
            whole(message.text),
            message.created,
            message.state,
            json.loads(message.meta),
        )
        for message in chat.messages
    ]
    return whole(chat.row.system), messages, dict(chat.traces)
