"""Replies that are written in turns: which one goes on."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter

from specchat.engine.protocol.events import Event
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply.pace import PREFERRED

AT_ONCE = 4
"""Most replies that are written in turns; others wait until one ends."""
FIRST_S, TURN_S = 1.0, 0.2
"""Seconds of a reply's first turn, in which many a short one ends, and of further ones."""
SHARE = 4
"""Times of going on with a reply that a turn lasts at least: what the models lost of its text is read again first."""


@dataclass(eq=False)
class OpenReply:
    """A reply that is being written, and its events to come."""

    request: Generate
    events: Iterator[Event]
    begun: bool = False
    turns: int = 0
    """Turns that it has had."""
    served: int = 0
    """Number of its last event, among those of all replies."""

    @property
    def turn_s(self) -> float:
        """Least seconds of its turn."""
        return TURN_S * (PREFERRED if self.request.chat else 1) if self.turns else FIRST_S


def _alone(request: Generate) -> bool:
    """True for a reply whose speed is compared with others', and for one whose prompt has to be read in one go."""
    return request.cold or request.scored


class ReplyTurns:
    """Replies in the order of their turns."""

    def __init__(
        self,
        back_s: Callable[[], float],
        clock: Callable[[], float] = perf_counter,
        cancelled: Callable[[int], bool] = lambda _: False,
        together: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`back_s` gives the seconds that the models took for the text of the last reply that went on.

        `cancelled` tells by its id which reply is to end, `together` gives the ids of those that go on in one pass.
        """
        self._of_back_s, self._clock, self._cancelled, self._together = back_s, clock, cancelled, together
        self._replies, self._count = deque[OpenReply](), count(1)
        self._going: OpenReply | None = None
        """The reply that `first` has chosen."""
        self._since = 0.0
        """When the turn began; 0 before its first event."""
        self._back_s = 0.0
        """Seconds that the first reply took to go on."""

    def __bool__(self) -> bool:
        return bool(self._replies)

    def may_begin(self, request: Generate) -> bool:
        """Return True if a reply may begin beside those that are written."""
        some = len(self._replies) < AT_ONCE and not any(_alone(reply.request) for reply in self._replies)
        return not self._replies or (some and not _alone(request))

    def add(self, request: Generate, events: Iterator[Event]) -> None:
        """Add a reply, whose turn is next but for those that have not begun either."""
        later = [place for place, reply in enumerate(self._replies) if place and reply.begun]
        self._replies.insert(min(later, default=len(self._replies)), OpenReply(request, events))

    @property
    def first(self) -> Generate:
        """The request whose turn it is: one that is to end, or the next if the first has had its turn.

        In a turn of one that goes on in one pass with others, each of them has an event in turn.
        """
        reply = self._replies[0]
        if ending := next((one for one in self._replies if self._cancelled(one.request.id)), None):
            if ending is not reply:
                self._replies.remove(ending)
                self._replies.appendleft(ending)
                self._since = 0.0
            self._going = ending
            return ending.request
        if self._since and self._clock() - self._since >= max(reply.turn_s, SHARE * self._back_s):
            reply.turns += 1
            self._replies.rotate(-1)
            self._since = 0.0
        self._going, together = self._replies[0], self._together()
        if self._going.request.id in together:
            several = [one for one in self._replies if one.request.id in together]
            self._going = min(several, key=lambda one: one.served)
        return self._going.request

    def next(self) -> Event | None:
        """Return an event of the reply that `first` chose, None after its last one, which ends it.

        Raises:
            Exception: what ended the reply.
        """
        reply, event = self._going or self._replies[0], None
        reply.served = next(self._count)
        try:
            event = next(reply.events, None)
        finally:
            if event is None:
                self._since = 0.0 if reply is self._replies[0] else self._since
                self._replies.remove(reply)
        if event is not None and not self._since:
            self._since = self._clock()
            self._back_s = self._of_back_s() if reply.begun else 0.0
            reply.begun = True
        return event
