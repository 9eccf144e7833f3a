"""Chats as the text of a file."""

from collections.abc import Iterable, Iterator
from typing import Literal

from specchat.chat.markdown import as_markdown
from specchat.chat.store import Store

Format = Literal["md", "json"]


def export(store: Store, keys: Iterable[str], format: Format) -> Iterator[str]:
    """The saved chats of `keys` in pieces: all in one JSON document, or the shown path of each as Markdown.

    Raises:
        NoChat: there is no chat of one of the keys.
    """
    if format == "json":
        from specchat.chat.json_format import as_json

        yield from as_json(store.whole(key) for key in keys)
        return
    for key in keys:
        chat, _ = store.load(key)
        yield as_markdown(chat)
