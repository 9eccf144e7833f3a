"""ctrl+c in the chat: each press ends one thing, and the last rung leaves."""

from collections.abc import Callable
from time import monotonic

from specchat.tui.screens.chat import ChatScreen

_AGAIN_S = 1.0
"""Seconds within which a second press leaves."""


class Interrupting:
    """`clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._said_at = float("-inf")

    def press(self, chat: ChatScreen) -> None:
        """Stop the reply, else editing, else clear the box, else say how to leave; leave if that was just said."""
        if chat.session.reply is not None:
            if not chat.session.stopping:
                chat.stop_reply()
        elif chat.chats.stop_editing():
            return
        elif chat.prompt.text:
            chat.prompt.clear()
            chat.say(f"prompt cleared; {chat.keys.named('undo')} brings it back")
        elif self.clock() - self._said_at <= _AGAIN_S:
            chat.run_worker(chat.do("quit"), exit_on_error=False)
        else:
            self._said_at = self.clock()
            key = chat.keys.first("quit")
            chat.say(f"{key} leaves specchat; so does ctrl+c twice" if key else "ctrl+c twice leaves specchat")
