"""The replies of saved chats, for the engine to copy from where the user wants that."""

import sqlite3

from specchat.chat.schema import in_words
from specchat.chat.store import Store
from specchat.engine.prefixes.on_disk import remove_chat
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Forget, Remember

CHARACTERS = 800_000
"""Characters sent to the engine at most, the newest: about as much as it keeps."""


class SavedReplies:
    """Sends the engine texts that it may copy from; it learns by itself those it writes."""

    def __init__(self, engine: EnginePort, store: Store, wanted: bool) -> None:
        self._engine = engine
        self._store = store
        self.wanted = wanted
        """True if the engine may copy from saved chats."""
        self._explained = False

    def loaded(self) -> str:
        """A pair was loaded, which remembers nothing; returns, once, why saved chats cannot be read."""
        if not self.wanted:
            return ""
        try:
            for chat, texts in self._store.replies(CHARACTERS):
                self._engine.send(Remember(chat, texts))
        except sqlite3.Error as error:
            explained, self._explained = self._explained, True
            return "" if explained else in_words(error, self._store.path)
        return ""

    def deleted(self, key: str) -> None:
        """A chat was deleted."""
        self._engine.send(Forget(key))
        remove_chat(key)

    def restored(self, key: str) -> None:
        """A chat was brought back."""
        if self.wanted:
            try:
                self._engine.send(Remember(key, self._store.replies_of(key)))
            except sqlite3.Error:
                return  # opening it says why it cannot be read

    def want(self, wanted: bool) -> None:
        """Copy from saved chats from now on, or no more."""
        self.wanted = wanted
        if wanted:
            self.loaded()
        else:
            self._engine.send(Forget(None))
