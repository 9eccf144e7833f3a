"""Editing earlier prompts, and moving between the versions of prompts and replies."""

from specchat.tui.actions.verb import Verb
from specchat.tui.screens.chat import ChatScreen

_EDIT = Verb[ChatScreen](lambda chat, _: chat.chats.edit())
_PREVIOUS = Verb[ChatScreen](lambda chat, _: chat.chats.show_version(-1))
_NEXT = Verb[ChatScreen](lambda chat, _: chat.chats.show_version(1))

BRANCHES: dict[str, Verb[ChatScreen]] = {
    "edit": _EDIT,
    "edit-here": _EDIT,
    "previous-version": _PREVIOUS,
    "previous-version-here": _PREVIOUS,
    "next-version": _NEXT,
    "next-version-here": _NEXT,
    "regenerate-here": Verb(lambda chat, _: chat.chats.regenerate()),
}
