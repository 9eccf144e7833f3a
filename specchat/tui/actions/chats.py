"""Chats as a whole: new, and written to a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from specchat.chat.export import as_markdown
from specchat.tui.actions.action import Action

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


def _save(chat: "ChatScreen", name: str) -> None:
    """Write the chat beside what is there, never over it."""
    number = 1
    while (path := Path(name or f"specchat-{number}.md")).exists():
        if name:
            chat.say(f"{path} exists already and is kept; choose another name", bad=True)
            return
        number += 1
    try:
        path.write_text(as_markdown(chat.session.conversation), encoding="utf-8")
    except OSError as error:
        chat.say(f"the chat could not be written: {error}", bad=True)
    else:
        chat.say(f"chat written to {path.resolve()}")


CHATS = (
    Action(
        "new-chat",
        "New chat",
        "Start an empty chat.",
        lambda chat, _: chat.new_chat(),
        ("ctrl+n",),
        hint="new",
        slash="new",
    ),
    Action(
        "save-chat",
        "Save chat",
        "Write the chat to a Markdown file in this folder.",
        _save,
        slash="save",
        argument="file name",
    ),
)
