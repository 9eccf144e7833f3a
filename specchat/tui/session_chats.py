"""Which chat the session shows: new ones, saved ones, their names and their versions."""

import threading

from specchat.chat.turn import Turn
from specchat.tui.session_state import SessionState
from specchat.tui.settings import from_data
from specchat.tui.shown_chat import CannotOpen


class SessionChats:
    """Belongs to a session. Replies that run in a chat go on when another is shown."""

    def __init__(self, session: SessionState) -> None:
        self._session = session

    def new(self) -> None:
        """Start over with an empty conversation; what runs in the one before goes on."""
        self._session.chat.start()
        self._left()

    def open(self, key: str) -> str:
        """Show a saved chat with the settings it had; what runs in the one before goes on. Gives a refusal.

        Its pair is loaded when something is written, not before: many chats may only be read.
        """
        if key == self._session.conversation.key:
            return ""
        running = self._session.replies.of(key)
        try:
            view = self._session.chat.open(key, running.chat if running is not None else None)
        except CannotOpen as error:
            return str(error)
        self._left()
        wanted = str(view.get("pair") or "")
        self._session.wanted = wanted if wanted != self._session.loaded.id else ""
        settings = from_data(view.get("settings"))
        if settings is not None:
            self._session.settings = settings
        if not self._session.wanted:
            self._session.settle()
        return ""

    def rename(self, key: str, name: str) -> threading.Event:
        """Give a saved chat another title; the event is set once that is saved."""
        running = self._session.replies.of(key)
        for chat in (self._session.conversation, *([running.chat] if running is not None else [])):
            if chat.key == key:
                chat.name = name
        return self._session.chat.saving.store.rename(key, name)

    def delete(self, key: str) -> threading.Event:
        """Delete a saved chat; the open one gives way to an empty one. The event is set once that is saved."""
        if running := self._session.replies.of(key):
            self._session.replies.stop(running)
        if key == self._session.conversation.key:
            self.new()
        self._session.saved.deleted(key)
        return self._session.chat.delete(key)

    def undelete(self) -> threading.Event | None:
        """Bring back the chat deleted last; the event is set once that is saved. None when none was deleted."""
        if (key := self._session.chat.last_deleted) is None:
            return None
        self._session.saved.restored(key)
        return self._session.chat.undelete()

    def show_branch(self, step: int, turn: Turn | None = None, *, of_prompt: bool = False) -> str:
        """Show another version of a prompt or reply; gives a refusal."""
        if self._session.running is not None:
            return "a reply is running: esc stops it"
        return self._session.chat.show_branch(step, turn, of_prompt=of_prompt)

    def _left(self) -> None:
        """Another chat is shown, and the one before has been saved with its pair."""
        self._session.prompt_count.forget()
        self._session.wanted = self._session.prefill = ""
