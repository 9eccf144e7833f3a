"""Keys and pastes one after the other: each has done what it does before the next one is taken.

Textual hands a key to the widget that has the focus, and on to what is around it, while later keys come: those with
priority, letters, and those for a screen that is still being built would overtake it.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic

from textual.app import App
from textual.events import Event, Key
from textual.message_pump import MessagePump
from textual.widget import Widget
from textual.widgets import Input, TextArea

_LONGEST_S = 1.0
"""Seconds after which a key is taken although the one before has not done all."""


def _is_letter(event: Event | None, target: Widget | None) -> bool:
    """True if `target` writes the key itself, in the order in which keys come."""
    return isinstance(event, Key) and event.is_printable and isinstance(target, Input | TextArea)


class InTurn:
    """Has `app` take what was typed by `take`, in its order."""

    def __init__(self, app: App[None], take: Callable[[Event], Awaitable[None]]) -> None:
        self._app = app
        self._take = take
        self._typed: deque[Event] = deque()
        self._taken_at: float | None = inf
        """When the one was taken that still does something; none is before `begin`."""

    @property
    def begun(self) -> bool:
        return self._taken_at != inf

    async def begin(self) -> None:
        """Take what was typed so far, and all that comes."""
        await self._next()

    async def add(self, event: Event) -> None:
        self._typed.append(event)
        if self._taken_at is None or monotonic() - self._taken_at > _LONGEST_S:
            await self._next()

    async def _next(self) -> None:
        self._taken_at = None
        while self._typed:
            self._taken_at = taken_at = monotonic()
            screen, focused = self._app.screen, self._app.focused
            event = self._typed.popleft()
            await self._take(event)
            same = self._app.screen is screen and self._app.focused is focused
            if same and (not event.is_forwarded or (_is_letter(event, focused) and _is_letter(self._first, focused))):
                self._taken_at = None  # all is done, or the next one is done behind it
                continue
            self._follow(list((focused or screen).ancestors_with_self), taken_at)
            return

    @property
    def _first(self) -> Event | None:
        return self._typed[0] if self._typed else None

    def _follow(self, pumps: list[MessagePump], taken_at: float) -> None:
        """Go the way of an event, behind it: each of `pumps` has handled it, and what came of it, by then."""
        while pumps:
            if pumps.pop(0).call_later(self._follow, pumps, taken_at):
                return
        self._app.call_later(self._arrived, taken_at)

    async def _arrived(self, taken_at: float) -> None:
        """Take the next one, once the screen that is shown by now has been built."""
        if taken_at == self._taken_at and not self._app.screen.call_later(self._app.call_later, self._done, taken_at):
            await self._done(taken_at)

    async def _done(self, taken_at: float) -> None:
        if taken_at == self._taken_at:
            await self._next()
