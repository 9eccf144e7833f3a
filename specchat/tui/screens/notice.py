"""The sentence in the status row: it goes after a while, or when what it tells is over."""

from typing import TYPE_CHECKING

from textual.timer import Timer

from specchat.clean import one_line
from specchat.tui.engine_events import UpdateKind

if TYPE_CHECKING:
    from specchat.tui.screens.chat import ChatScreen

_SHOWN_FOR = 6.0
"""Seconds."""


class Notice:
    """Belongs to the chat screen, which draws it."""

    def __init__(self, chat: "ChatScreen") -> None:
        self._chat = chat
        self.text = ""
        self.bad = False
        self._until: UpdateKind | None = None
        self._timer: Timer | None = None

    def show(self, text: str, *, bad: bool, until: UpdateKind | None) -> None:
        """Show `text`, at most until an update of kind `until`; an empty one shows none."""
        self.text, self.bad, self._until = one_line(text, 400), bad, until
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._chat.set_timer(_SHOWN_FOR, self._over) if text else None

    def happened(self, kind: UpdateKind) -> None:
        """Take it away where it lasts until an update of this kind."""
        if self.text and self._until == kind:
            self._over()

    def _over(self) -> None:
        self._chat.say("")
