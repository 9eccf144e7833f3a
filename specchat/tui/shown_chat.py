"""The chat that is shown: which one, which of its branches, and what is found again when it is reopened."""

import sqlite3
import threading
from collections.abc import Callable, Mapping
from typing import Any

from specchat.attachments import Attachment
from specchat.chat.saving import Saving
from specchat.chat.schema import in_words
from specchat.chat.tree import Conversation
from specchat.chat.turn import Turn
from specchat.tui.collector import paused
from specchat.tui.launch import Launch


class CannotOpen(Exception):
    """A chat cannot be shown; the message is a sentence."""


class ShownChat:
    """`view` gives pair and settings, to be saved with the chat."""

    def __init__(self, launch: Launch, view: Callable[[], Mapping[str, Any]]) -> None:
        self._system = launch.system
        self._view = view
        self._left: dict[str, Mapping[str, Any]] = {}
        """The views of the chats that were shown before, by their keys."""
        self._deleted: list[str] = []
        """Keys of the chats that were deleted, the latest last."""
        self.conversation = Conversation(launch.system)
        self.saving = Saving(launch.store, self._whole_view)
        self.scroll: Mapping[str, Any] = {}
        """Where the transcript is, as it describes it; empty at the end."""
        self.editing: Turn | None = None
        """The earlier prompt that the next one takes the place of."""

    def start(self) -> None:
        """An empty chat; the one before is kept as it is."""
        self._show(Conversation(self._system))

    def open(self, key: str, running: Conversation | None = None) -> Mapping[str, Any]:
        """Show a saved chat, `running` if a reply is being written in it; gives what `view` gave when it was left.

        Raises:
            CannotOpen: it is not there or cannot be read.
        """
        store = self.saving.store
        try:
            with paused():
                conversation, row = store.load(key)
        except KeyError:
            raise CannotOpen("that chat is not there any more") from None
        except sqlite3.Error as error:
            raise CannotOpen(in_words(error, store.path)) from None
        self._show(running or conversation)
        scroll = row.view.get("scroll")
        self.scroll = scroll if isinstance(scroll, dict) else {}
        return row.view

    def look(self) -> bool:
        """Take over what another program saved in this chat; whether there was anything."""
        try:
            return self.saving.store.merge(self.conversation)
        except sqlite3.Error:
            return False  # told where something is saved

    def ask(self, text: str, attachments: tuple[Attachment, ...] = ()) -> tuple[Turn, str]:
        """A new prompt, in the place of the edited one if there is one; and a warning if it is not saved yet."""
        chat, editing = self.conversation, self.editing
        turn = chat.ask(text, attachments) if editing is None else chat.edit(editing, text, attachments)
        self.editing = None
        return turn, self.saving.asked(chat, turn)

    def delete(self, key: str) -> threading.Event:
        """Delete a saved chat; the event is set once that is saved."""
        self._deleted.append(key)
        return self.saving.store.delete(key)

    @property
    def last_deleted(self) -> str | None:
        """The key of the chat deleted last that was not brought back."""
        return self._deleted[-1] if self._deleted else None

    def undelete(self) -> threading.Event | None:
        """Bring back the chat deleted last; None when none was."""
        return self.saving.store.restore(self._deleted.pop()) if self._deleted else None

    def set_system(self, text: str) -> None:
        """Give the chat another system prompt, from its next reply on."""
        self.conversation.system = text
        self.saving.looked(self.conversation)

    def show_branch(self, step: int, turn: Turn | None = None, *, of_prompt: bool = False) -> str:
        """Show the version `step` places beside: of `turn`'s reply or prompt, or of the latest with several.

        Where both have several it is the reply, or the prompt if `of_prompt`. Gives a sentence where there is none.
        """
        for at in [turn] if turn is not None else reversed(self.conversation.turns):
            for fork in (at.replies, self.conversation.siblings(at))[:: -1 if of_prompt else 1]:
                if len(fork) > 1:
                    beside = fork.beside(step)
                    if beside is None:
                        return f"that is the {'first' if step < 0 else 'last'} of {len(fork)} versions"
                    self.conversation.show(beside)
                    self.saving.looked(self.conversation)
                    return ""
        return "there is only one version of everything here"

    def _show(self, conversation: Conversation) -> None:
        self.saving.looked(self.conversation)
        self._left[self.conversation.key] = self._whole_view(self.conversation)
        self.conversation, self.editing, self.scroll = conversation, None, {}

    def _whole_view(self, chat: Conversation) -> Mapping[str, Any]:
        if chat is not self.conversation:
            return self._left.get(chat.key, {})
        return {**self._view(), "scroll": dict(self.scroll)}
