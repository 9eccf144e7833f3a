"""ctrl+c on the chat screen: each press ends one thing, and the last rung leaves."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from specchat.tui.actions.table import BY_ID

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen

_AGAIN_S = 1.0
"""Seconds within which a second press leaves."""


class Interrupting:
    """Acts on the chat screen it belongs to. `clock` gives seconds."""

    def __init__(self, chat: "ChatScreen", clock: Callable[[], float] = monotonic) -> None:
        self._chat = chat
        self.clock = clock
        self._told = float("-inf")

    def press(self) -> None:
        """Stop the reply, else clear the prompt, else say how to leave; leave when that was said just now."""
        chat = self._chat
        if chat.session.reply is not None:
            if not chat.session.stopping:
                chat.stop_reply()
        elif chat.prompt.text:
            chat.chats.stop_editing()
            chat.prompt.clear()
            chat.say(f"prompt cleared; {chat.keys.first(BY_ID['undo'])} brings it back")
        elif self.clock() - self._told <= _AGAIN_S:
            chat.run_worker(chat.do("quit"), exit_on_error=False)
        else:
            self._told = self.clock()
            key = chat.keys.first(BY_ID["quit"])
            chat.say(f"{key} leaves specchat; so does ctrl+c twice" if key else "ctrl+c twice leaves specchat")
