"""Chats as the text of a file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

from specchat.chat.store import Store
from specchat.chat.tree import Conversation

Format = Literal["md", "html", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_ENDINGS: dict[str, Format] = {".json": "json", ".html": "html", ".htm": "html"}


def format_of(path: Path) -> Format:
    """The format that the ending of a file's name says; Markdown where it says none."""
    return _ENDINGS.get(path.suffix.lower(), "md")


def as_page(chat: Conversation, format: Literal["md", "html"]) -> Iterator[str]:
    """The shown path of a chat, in pieces."""
    if format == "md":
        from specchat.chat.markdown import as_markdown

        yield as_markdown(chat)
    else:
        from specchat.chat.html_format import as_html

        yield from as_html(chat)


def export(store: Store, keys: Iterable[str], format: Format) -> Iterator[str]:
    """The saved chats of `keys` in pieces: all in one JSON document, or the shown path of each.

    Raises:
        NoChat: there is no chat of one of the keys.
    """
    if format == "json":
        from specchat.chat.json_format import as_json

        yield from as_json(store.whole(key) for key in keys)
        return
    for key in keys:
        chat, _ = store.load(key)
        yield from as_page(chat, format)
