"""Editing earlier prompts, and moving between the versions of prompts and replies."""

from specchat.tui.action import Action
from specchat.tui.actions.comparing import again
from specchat.tui.screens.chat import ChatScreen


def _edit(chat: ChatScreen, _: str) -> None:
    chat.chats.edit()


def _previous(chat: ChatScreen, _: str) -> None:
    chat.chats.show_version(-1)


def _next(chat: ChatScreen, _: str) -> None:
    chat.chats.show_version(1)


BRANCHES: tuple[Action[ChatScreen], ...] = (
    Action("edit", "Edit prompt", "Edit your last prompt; what was said since stays as a branch.", _edit, ("f5",),
           slash="edit"),
    Action("previous-version", "Previous version", "Show the version before, of the latest message that has one.",
           _previous, ("f7",)),
    Action("next-version", "Next version", "Show the version after, of the latest message that has one.",
           _next, ("f8",)),
    Action("edit-here", "Edit here", "Edit the prompt under the cursor, as a branch.", _edit, ("e",), hint="edit",
           where="transcript"),
    Action("regenerate-here", "Regenerate here", "Answer the prompt under the cursor again, as a branch.",
           lambda chat, _: again(chat, ""), ("r",), hint="again", where="transcript"),
    Action("previous-version-here", "Previous version here", "Show the version before of the message under the cursor.",
           _previous, ("<",), hint="version before", where="transcript", when="on versions"),
    Action("next-version-here", "Next version here", "Show the version after it of the message under the cursor.",
           _next, (">",), hint="after", where="transcript", when="on versions"),
)  # fmt: skip
