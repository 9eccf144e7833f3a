"""The sentence in the status row: it goes after a while, or when its subject is over."""

from collections.abc import Callable

from textual.message_pump import MessagePump
from textual.timer import Timer

from specchat.clean import one_line
from specchat.service.dispatch import UpdateKind

_SHOWN_FOR, _READ = 6.0, 12
"""Seconds at least, and characters that are read in one."""


class Notice:
    """Keeps time by `clock`, a widget or screen; `changed` draws what is to be shown."""

    def __init__(self, clock: MessagePump, changed: Callable[[], None]) -> None:
        self._clock = clock
        self._changed = changed
        self.text = ""
        self.bad = False
        self.number = 0
        """Number of the sentence, counted from the first: another number means another sentence."""
        self._until: UpdateKind | None = None
        self._timer: Timer | None = None

    def say(self, text: str, *, bad: bool = False, until: UpdateKind | None = None) -> None:
        """Show `text` for a while, at most until an update of kind `until`; an empty one shows none."""
        self.text, self.bad, self._until = one_line(text, 400), bad, until
        self.number += 1
        if self._timer is not None:
            self._timer.stop()
        self._timer = None
        if text:
            self._timer = self._clock.set_timer(max(_SHOWN_FOR, len(self.text) / _READ), self._over)
        self._changed()

    def happened(self, kind: UpdateKind) -> None:
        """Take it away where it lasts until an update of this kind; a reply's first step, or its end without any."""
        if self.text and (self._until == kind or (self._until == "reply" and kind == "ended")):
            self._over()

    def _over(self) -> None:
        self.say("")
