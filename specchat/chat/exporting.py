"""Chats as the text of a file."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from specchat.chat.files import ChatFileError
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.clean import one_line

Format = Literal["md", "html", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

_ENDINGS: dict[str, Format] = {"json": "json", "html": "html", "htm": "html", "md": "md", "markdown": "md"}
_OTHERS = ("csv", "doc", "docx", "epub", "odt", "pdf", "rtf", "tex", "xml")
"""Endings of formats that are not written: Markdown under such a name would open in the wrong program."""


def format_named(word: str) -> Format | None:
    """The format that `word` names, as users write it; None where it is a file's name.

    Raises:
        ChatFileError: it is another format.
    """
    ending = word.lower().removeprefix(".")
    if ending in _OTHERS:
        raise ChatFileError(f"Chats are not written as {ending}, but as {', '.join(FORMATS)}.")
    return _ENDINGS.get(ending)


def format_of(path: Path) -> Format:
    """The format that the ending of a file's name says; Markdown where it says none.

    Raises:
        ChatFileError: the ending is that of another format.
    """
    try:
        return format_named(path.suffix) or "md"
    except ChatFileError as error:
        raise ChatFileError(f"{one_line(str(path))}: {str(error)[0].lower()}{str(error)[1:]}") from None


def as_page(chat: Conversation, format: Literal["md", "html"], tags: Sequence[str] = ()) -> Iterator[str]:
    """The shown path of a chat, in pieces."""
    if format == "md":
        from specchat.chat.markdown import as_markdown

        yield as_markdown(chat, tags)
    else:
        from specchat.chat.html_format import as_html

        yield from as_html(chat, tags)


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
        chat, row = store.load(key)
        yield from as_page(chat, format, row.tags)
