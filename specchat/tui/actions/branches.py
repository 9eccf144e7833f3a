"""Editing earlier prompts, and moving between the versions of prompts and replies."""

from typing import TYPE_CHECKING

from specchat.tui.actions.action import Action

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen


def _beside(chat: "ChatScreen", step: int) -> None:
    if refusal := chat.session.show_branch(step):
        chat.say(refusal, bad=True)
        return
    chat.show_conversation()


BRANCHES = (
    Action(
        "edit",
        "Edit prompt",
        "Edit your last prompt; what was said since stays as a branch.",
        lambda chat, _: chat.edit(),
        ("f5",),
        slash="edit",
    ),
    Action(
        "previous-version",
        "Previous version",
        "Show the version before, of the latest reply or prompt with several.",
        lambda chat, _: _beside(chat, -1),
        ("f7",),
    ),
    Action(
        "next-version",
        "Next version",
        "Show the version after it.",
        lambda chat, _: _beside(chat, 1),
        ("f8",),
    ),
)
