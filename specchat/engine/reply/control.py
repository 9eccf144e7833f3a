"""Control of a running reply."""

from typing import Protocol

from specchat.engine.protocol.requests import Cancel, Change


class Control(Protocol):
    """Source of control messages for a reply."""

    def poll(self) -> Cancel | Change | None:
        """The next message for this reply, or None; called between steps."""
        ...


class Uncontrolled:
    """A control without messages."""

    def poll(self) -> None:
        return None


UNCONTROLLED = Uncontrolled()
