"""How a running reply is told to change or stop."""

from typing import Protocol

from specchat.engine.api import Cancel, Change


class Control(Protocol):
    """Where a reply hears from its user."""

    def poll(self) -> Cancel | Change | None:
        """The next message for this reply, None when there is none; called between steps."""
        ...


class Uncontrolled:
    """Nobody interferes."""

    def poll(self) -> None:
        return None


UNCONTROLLED = Uncontrolled()
