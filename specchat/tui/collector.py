"""Timing of garbage collections: a full one stops the screen while it goes through all chats and widgets."""

import gc


class Collector:
    """Leaves what is there out of the collections while a reply runs: they look at its objects once.

    What a chat leaves behind is collected after another was opened, when nothing runs and nobody types.
    """

    def __init__(self) -> None:
        self._aside = False
        self._collections = 0
        self._chat = ""
        self._typed = ""
        self._due = False

    def running(self) -> None:
        """A reply runs; called many times a second."""
        collections = gc.get_stats()[2]["collections"]
        if not self._aside or collections != self._collections:
            gc.freeze()
            self._aside, self._collections = True, collections

    def idle(self, chat: str, typed: str) -> None:
        """Nothing runs; called about once a second with the key of the chat that is shown, and what is typed.

        An empty chat has no key: it leaves nothing behind.
        """
        self._aside = False
        if chat != self._chat:
            self._due = bool(self._chat)
            self._chat = chat
            gc.freeze()
        elif self._due and typed == self._typed:
            self._due = False
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        self._typed = typed
