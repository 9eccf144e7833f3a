"""The chat that a client works in: its branches, and what is found again when it is reopened."""

import gc
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from specchat.attachments.files import Attachment
from specchat.chat.saving import Saving
from specchat.chat.schema import in_words
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Turn

SCRATCH = "scratch"
"""In the view of a chat that is kept until the next one like it, and that no list shows."""


class CannotOpen(Exception):
    """A chat cannot be shown; the message is a sentence."""


class OpenChat:
    """`view` gives what is saved with a chat besides its messages: its pair, and perhaps its settings."""

    def __init__(self, store: Store, system: str, view: Callable[[], Mapping[str, Any]]) -> None:
        self._system = system
        self._view = view
        self._views: dict[str, Mapping[str, Any]] = {}
        """By key: views of the chats that were open before."""
        self._opened: Mapping[str, Any] = {}
        """The view that the open chat was saved with."""
        self.conversation = Conversation(system)
        self.saving = Saving(store, self._whole_view)
        self.scroll: Mapping[str, Any] = {}
        """The reading position, as the client describes it; empty at the end."""
        self.editing: Turn | None = None
        """The earlier prompt that the next one replaces."""
        self.scratch = False
        """True for a chat that goes when the next scratch chat begins."""

    @property
    def saved(self) -> str | None:
        """The key of a chat that is saved to stay."""
        key = self.conversation.key
        return key if not self.scratch and self.saving.store.holds(key) else None

    def start(self) -> None:
        """Begin an empty chat; the one before is kept as it is."""
        self._show(Conversation(self._system), {})

    def open(self, key: str, running: Conversation | None = None) -> Mapping[str, Any]:
        """Open a saved chat, `running` if a reply is being written in it; returns its view.

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
        self._show(running or conversation, row.view)
        scroll = row.view.get("scroll")
        self.scroll = scroll if isinstance(scroll, dict) else {}
        return row.view

    def look(self) -> bool:
        """Take over what another program saved in this chat; True if there was anything."""
        try:
            return self.saving.store.merge(self.conversation)
        except sqlite3.Error:
            return False  # saving says so

    def ask(self, text: str, attachments: tuple[Attachment, ...] = ()) -> tuple[Turn, str]:
        """A new prompt, in the place of the edited one if there is one; and a warning if it is not saved yet."""
        chat, editing = self.conversation, self.editing
        if self.scratch:
            self.saving.store.drop_scratch(but=chat.key)
        turn = chat.ask(text, attachments) if editing is None else chat.edit(editing, text, attachments)
        self.editing = None
        return turn, self.saving.asked(chat, turn)

    def set_system(self, text: str) -> None:
        """Give the chat another system prompt, from its next reply on."""
        self.conversation.system = text
        self.saving.looked(self.conversation)

    def show_branch(self, step: int, turn: Turn | None = None, *, of_prompt: bool = False) -> str:
        """Show the version `step` places beside: of `turn`'s reply or prompt, or of the latest that has such a one.

        Where both of a turn have several it is the reply, or the prompt if `of_prompt`. Returns a sentence where there
        is none.
        """
        refusal = ""
        for at in [turn] if turn is not None else reversed(self.conversation.turns):
            for fork in (at.replies, self.conversation.siblings(at))[:: -1 if of_prompt else 1]:
                if len(fork) < 2 or (refusal and turn is not None):
                    continue
                beside = fork.beside(step)
                if beside is not None:
                    self.conversation.show(beside)
                    self.saving.looked(self.conversation)
                    return ""
                refusal = refusal or f"that is the {'first' if step < 0 else 'last'} of {len(fork)} versions"
        return refusal or "there is only one version of everything here"

    def _show(self, conversation: Conversation, view: Mapping[str, Any]) -> None:
        self.saving.looked(self.conversation)
        self._views[self.conversation.key] = self._whole_view(self.conversation)
        self.conversation, self._opened = conversation, view
        self.editing, self.scroll, self.scratch = None, {}, bool(view.get(SCRATCH))

    def _whole_view(self, chat: Conversation) -> Mapping[str, Any]:
        if chat is not self.conversation:
            return self._views.get(chat.key, {})
        opened = {name: value for name, value in self._opened.items() if name != SCRATCH}
        return {**opened, **self._view(), "scroll": dict(self.scroll), **({SCRATCH: True} if self.scratch else {})}


@contextmanager
def paused() -> Iterator[None]:
    """Without garbage collections: where many objects are made at once, they would take half of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
