"""Saved chats: opening, renaming and deleting them while replies may run in any."""

import threading

from specchat.chat.turn import Turn
from specchat.service.open_chat import CannotOpen
from specchat.service.settings import ChatSettings, from_data
from specchat.service.state import ServiceState


class SavedChats:
    """The chats of a service. Replies that run in a chat go on when another is opened."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._store = state.chat.saving.store
        self._deleted: list[str] = []
        """Keys of the chats that were deleted here, the latest last."""
        self._usual: tuple[str, ChatSettings] | None = None
        """The loaded pair, and the settings of chats that have none of their own; None while such a chat is open."""

    def new(self) -> None:
        """Open an empty chat with the settings of the last one; what runs in the one before goes on."""
        self._state.chat.start()
        self._left()
        self._state.settings, self._usual = self._settings(), None

    def _settings(self) -> ChatSettings:
        """The settings of a chat that has none of its own."""
        loaded = self._state.loaded
        if self._usual is None or loaded.pair is None:
            return self._state.settings
        pair, settings = self._usual
        return settings if pair == loaded.id else self._state.defaults(loaded.pair)

    def open(self, key: str) -> str:
        """Open a saved chat with the settings it had; what runs in the one before goes on. Returns a refusal.

        Its pair is loaded when something is written, not before: many chats may only be read.
        """
        state = self._state
        if key == state.conversation.key:
            return ""
        at_work = state.replies.of(key) or state.calls.of(key)
        try:
            view = state.chat.open(key, at_work.chat if at_work is not None else None)
        except CannotOpen as error:
            return str(error)
        self._left()
        state.tools.opened(key, view.get("tools"))
        state.bind(view)
        self._usual = self._usual or (state.loaded.id, state.settings)
        state.settings = from_data(view.get("settings")) or self._settings()
        if not state.wanted:
            state.settle()
        return ""

    def rename(self, key: str, name: str) -> threading.Event:
        """Give a saved chat another title; the event is set once that is saved."""
        running = self._state.replies.of(key)
        for chat in (self._state.conversation, *([running.chat] if running is not None else [])):
            if chat.key == key:
                chat.name = name
        return self._store.rename(key, name)

    def duplicate(self, key: str) -> tuple[str, threading.Event]:
        """Copy a saved chat, of the open one as it is shown and set now; the copy's key, and an event once it is saved.

        Raises:
            NoChat: there is none of that key.
        """
        self._state.chat.saving.looked(self._state.conversation)
        self._store.holds(key)  # with all changes
        return self._store.duplicate(key)

    def delete(self, key: str) -> threading.Event:
        """Delete a saved chat; the open one gives way to an empty one. The event is set once that is saved."""
        state = self._state
        if running := state.replies.of(key):
            state.replies.stop(running)
        state.calls.drop(key)
        if key == state.conversation.key:
            self.new()
        state.saved.deleted(key)
        self._deleted.append(key)
        return self._store.delete(key)

    def undelete(self) -> threading.Event | None:
        """Bring back the chat deleted last, here or else before; the event is set once that is saved.

        None when none can be brought back.
        """
        if self._deleted:
            key = self._deleted.pop()
        elif before := self._store.deleted():
            key = before[0].key
        else:
            return None
        self._state.saved.restored(key)
        return self._store.restore(key)

    def show_branch(self, step: int, turn: Turn | None = None, *, of_prompt: bool = False) -> str:
        """Show another version of a prompt or reply; returns a refusal."""
        if self._state.running is not None:
            return "a reply is running"
        if self._state.calling is not None:
            return "a tool is being called"
        return self._state.chat.show_branch(step, turn, of_prompt=of_prompt)

    def _left(self) -> None:
        """Another chat is open, and the one before has been saved with its pair."""
        self._state.prompt_count.forget()
        self._state.chat_pair = self._state.prefill = ""
