"""Chats to and from files."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.chat.files import ChatFileError, write_new
from specchat.chat.schema import StoreError, in_words
from specchat.clean import one_line
from specchat.tui.action import Action
from specchat.tui.screens.chat import ChatScreen

if TYPE_CHECKING:
    from specchat.chat.exporting import Format


def _export(chat: ChatScreen, argument: str) -> None:
    """`argument` is a format, a file's name, or both; without any a dialog asks for the name."""
    from specchat.chat.exporting import format_named
    from specchat.tui.screens.ask import AskScreen

    if not chat.session.conversation.turns:
        chat.say("this chat is still empty", bad=True)
        return
    first, _, rest = argument.strip().partition(" ")
    try:
        known = format_named(first) if first and not first.startswith(".") else None
    except ChatFileError as error:
        chat.give_back(f"/export {argument}", str(error))
        return

    def named(text: str | None) -> None:
        if text is not None and text.strip() and (wrong := _write(chat, Path(text.strip()))):
            chat.give_back(f"/export {text}", wrong)

    if known is not None:
        if wrong := _write(chat, Path(rest.strip() or _free(known)), known):
            chat.give_back(f"/export {argument}", wrong)
    elif argument.strip():
        named(argument)
    else:
        chat.app.push_screen(AskScreen("export chat to a .md, .html or .json file", _free("md")), named)


def _free(kind: str) -> str:
    """The first name of a row that no file has."""
    return next(name for n in count(1) if not Path(name := f"specchat-{n}.{kind}").exists())


def _write(chat: ChatScreen, path: Path, format: "Format | None" = None) -> str:
    """Write the open chat to a new file; the name says which format, unless `format` does. Return what went wrong."""
    from specchat.chat.exporting import format_of

    path = Path(os.path.expanduser(path))
    try:
        write_new(path, _written(chat, format or format_of(path)))
    except ChatFileError as error:
        return str(error)
    except KeyError:
        return f"this chat is not saved yet. {chat.session.chat.saving.store.delay}"
    except sqlite3.Error as error:
        return in_words(error, chat.session.chat.saving.store.path)
    chat.say(f"chat written to {path.resolve()}")
    return ""


def _written(chat: ChatScreen, format: "Format") -> Iterator[str]:
    from specchat.chat.exporting import as_page
    from specchat.chat.json_format import as_json

    conversation, store = chat.session.conversation, chat.session.chat.saving.store
    if format == "json":
        return as_json([store.whole(conversation.key)])
    row = store.row(conversation.key)
    return as_page(conversation, format, row.tags if row is not None else ())


def _import(chat: ChatScreen, argument: str) -> None:
    from specchat.tui.screens.ask import AskScreen

    def named(text: str | None) -> None:
        if text is not None and text.strip():
            chat.say(f"reading {one_line(text)}")
            chat.run_worker(_read(chat, text), group="import")

    if argument.strip():
        named(argument)
    else:
        chat.app.push_screen(AskScreen("import chats from a file"), named)


async def _read(chat: ChatScreen, name: str) -> None:
    """Import in a thread, for files can be large; a single new chat is shown."""
    from specchat.chat.importing import import_file

    path = Path(os.path.expanduser(name.strip()))
    try:
        imported = await asyncio.to_thread(import_file, chat.session.chat.saving.store, path)
    except (ChatFileError, StoreError) as error:
        chat.give_back(f"/import {name}", str(error))
        return
    chat.draw_chats()
    if len(imported.keys) == 1:
        chat.chats.open(imported.keys[0])
    chat.say(imported.summary())


FILES: tuple[Action[ChatScreen], ...] = (
    Action("export-chat", "Export chat", "Write the chat to a new file: Markdown, HTML or, whole, JSON.", _export,
           slash="export", argument="md, html or json, file name"),
    Action("import-chats", "Import chats", "Add chats exported by specchat or ChatGPT, or from Markdown.",
           _import, slash="import", argument="file name"),
)  # fmt: skip
