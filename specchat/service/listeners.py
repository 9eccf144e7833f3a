"""The listeners of requests, by the requests' ids."""

from collections import defaultdict
from collections.abc import Callable
from itertools import count

from specchat.engine.protocol.events import Counted, Event, Failed, Finished, Loaded, Loading

Listener = Callable[[Event], object]


class Listeners:
    """Any number of listeners for each request, until it ends. It numbers requests too."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._of: defaultdict[int, list[Listener]] = defaultdict(list)

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def pending(self) -> tuple[int, ...]:
        """The ids of the requests that are listened to."""
        return tuple(self._of)

    def new_id(self) -> int:
        """The id of a new request."""
        return next(self._ids)

    def add(self, request: int, listener: Listener) -> None:
        """Have `listener` called with each event of `request`."""
        self._of[request].append(listener)

    def notify(self, event: Event) -> bool:
        """Call the listeners of an event's request; False if it has none."""
        if isinstance(event, Loading | Loaded) or event.id is None or event.id not in self._of:
            return False
        for listener in tuple(self._of[event.id]):
            listener(event)
        if isinstance(event, Finished | Failed | Counted):
            self._of.pop(event.id, None)
        return True

    def fail(self, death: Failed) -> None:
        """End all requests that are listened to: the engine is gone."""
        for request in self.pending:
            self.notify(Failed(request, death.kind, death.message))
