"""The saved chats as commands reach them: opening the database, and finding a chat by what people call it."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import click

from specchat.clean import one_line
from specchat.cli.exit_codes import ExitCode
from specchat.cli.output import Problem

if TYPE_CHECKING:
    from specchat.chat.rows import ChatEntry
    from specchat.chat.store import Store

LAST = "last"
_SHOWN = 5
"""Chats named where a name fits several."""


@contextlib.contextmanager
def opened_store() -> Iterator["Store"]:
    """The user's chats, closed at the end with what waits saved.

    Raises:
        Problem: the database, or a file of chats that the block works with, cannot be used.
    """
    from specchat.chat.files import ChatFileError
    from specchat.chat.schema import StoreError, in_words
    from specchat.chat.store import Store
    from specchat.chat.stored import NoChat
    from specchat.config.paths import private_folder, user_paths

    path = user_paths().chats
    private_folder(path.parent)
    try:
        store = Store(path)
    except StoreError as error:
        raise Problem(str(error), ExitCode.UNUSABLE) from None
    with closing(store):
        try:
            yield store
        except ChatFileError as error:
            raise Problem(str(error), ExitCode.USAGE) from None
        except (StoreError, NoChat) as error:
            raise Problem(str(error), ExitCode.UNUSABLE) from None
        except sqlite3.Error as error:
            raise Problem(in_words(error, path), ExitCode.UNUSABLE) from None


def store_or_memory(path: Path) -> "tuple[Store, list[str]]":
    """The chats' database; in memory, with the reason, where the file cannot be used."""
    from specchat.chat.schema import StoreError
    from specchat.chat.store import Store
    from specchat.config.errors import ConfigError
    from specchat.config.paths import private_folder

    try:
        private_folder(path.parent)
        return Store(path), []
    except (StoreError, ConfigError) as error:
        return Store(), [f"{error} Until then chats are kept in memory and end with specchat."]


@contextlib.contextmanager
def closing(store: "Store") -> Iterator[None]:
    """Save what waits when the block ends.

    Raises:
        Problem: that cannot be; where the block fails by itself, only standard error tells.
    """
    try:
        yield
    except BaseException:
        if lost := _lost(store):
            click.echo(lost, err=True)
        raise
    if lost := _lost(store):
        raise Problem(lost, ExitCode.UNUSABLE)


def _lost(store: "Store") -> str:
    """Close a store; gives why some of it is not saved."""
    return "" if store.close() else f"Some messages could not be saved. {store.delay}"


def saved(store: "Store", done: Event) -> None:
    """Wait for a change.

    Raises:
        Problem: it is not saved.
    """
    if not store.saved(done):
        raise Problem(store.problem, ExitCode.UNUSABLE)


def find_chat(store: "Store", wanted: str, scratch: bool = False) -> "ChatEntry":
    """The chat called `wanted`: a key, "last", a number of `specchat chats list`, or how its title begins.

    With `scratch` the last may be a scratch chat.

    Raises:
        Problem: there is none, or there are several.
    """
    entries = store.chats()
    if wanted == LAST:
        latest = entries + [found for found in [store.scratch() if scratch else None] if found is not None]
        if not latest:
            raise Problem("There are no chats yet.", ExitCode.USAGE)
        return max(latest, key=lambda entry: entry.updated)
    found = [entry for entry in entries if entry.key == wanted]
    if not found and wanted.isdecimal() and 0 < int(wanted[:9]) <= len(entries):
        found = [entries[int(wanted[:9]) - 1]]
    return found[0] if found else by_title(entries, wanted, "specchat chats list shows them.")


def by_title(entries: "list[ChatEntry]", wanted: str, hint: str) -> "ChatEntry":
    """The chat whose title is `wanted`, or else the only one whose title begins like it.

    Raises:
        Problem: there is none, with `hint`, or there are several.
    """
    folded = " ".join(wanted.casefold().split())
    titles = [(" ".join(entry.title.casefold().split()), entry) for entry in entries]
    found = [entry for title, entry in titles if title == folded]
    if len(found) != 1:
        found = [entry for title, entry in titles if folded and title.startswith(folded)]
    name = one_line(wanted, 60)
    if not found:
        raise Problem(f'There is no chat "{name}". {hint}', ExitCode.USAGE)
    if len(found) > 1:
        keys = ", ".join(f'{entry.key} ("{one_line(entry.title, 40)}")' for entry in found[:_SHOWN])
        more = ", ..." if len(found) > _SHOWN else ""
        raise Problem(f'{len(found)} titles begin with "{name}". Give a key: {keys}{more}.', ExitCode.USAGE)
    return found[0]
