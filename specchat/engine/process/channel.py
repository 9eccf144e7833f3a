"""Messages to and from another process, with a thread for each direction."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from specchat.engine.process import wire
from specchat.engine.protocol.events import Event, Failed
from specchat.engine.protocol.requests import Count, Generate, Load, Request


class Gone:
    """The end of the messages."""


class Channel:
    """Never blocks its caller. `received` ends with a `Gone`."""

    def __init__(
        self,
        read: Callable[[], Iterable[Any]],
        stream: IO[bytes],
        ended: Callable[[], object] = lambda: None,
        arrived: Callable[[Any], object] = lambda _: None,
    ) -> None:
        """`read` gives the messages, `stream` takes them.

        The reading thread calls `arrived` with each message, and `ended` before the `Gone`.
        """
        self.received: SimpleQueue[Any] = SimpleQueue()
        self._sent: SimpleQueue[Any] = SimpleQueue()
        self._stream = stream
        self._last: object = None
        Thread(target=self._write, name="engine requests", daemon=True).start()
        Thread(target=self._read, args=(read, ended, arrived), name="engine events", daemon=True).start()

    def send(self, message: object) -> None:
        self._sent.put(message)

    def end(self, message: object) -> None:
        """Send a last message and close the stream."""
        self._last = message
        self._sent.put(message)

    def next(self, timeout: float | None) -> Any:
        """Wait up to `timeout` seconds for a message; raises Empty."""
        return self.received.get(timeout=timeout) if timeout != 0 else self.received.get_nowait()

    def _write(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._stream:
            while True:
                message = self._sent.get()
                if isinstance(message, Gone):
                    return
                wire.write(self._stream, message)
                if message is self._last:
                    return

    def _read(
        self, read: Callable[[], Iterable[Any]], ended: Callable[[], object], arrived: Callable[[Any], object]
    ) -> None:
        with contextlib.suppress(Exception):  # a killed process may leave half a message
            for message in read():
                self.received.put(message)
                arrived(message)
        ended()
        self._sent.put(Gone())  # ends the writing thread
        self.received.put(gone := Gone())
        arrived(gone)


class Receiver(ABC):
    """Common part of all `EnginePort`s over a channel: reads events, and refuses requests that nobody can answer."""

    def __init__(self) -> None:
        self._own: SimpleQueue[Event] = SimpleQueue()
        """Events of this process."""
        self._listener: Callable[[Any], object] = lambda _: None

    def listen(self, arrived: Callable[[Any], object]) -> None:
        self._listener = arrived

    @abstractmethod
    def _next(self, timeout: float | None) -> Event:
        """Wait up to `timeout` seconds for the next event; raises Empty."""

    def poll(self) -> list[Event]:
        found: list[Event] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._next(0.0))
        return found

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        with contextlib.suppress(Empty):
            while True:
                event = self._next(timeout)
                yield event
                if isinstance(event, Failed) and event.kind == "died":
                    return

    def _refuse(self, request: Request) -> None:
        """Answer a request that needs an engine where none runs."""
        if isinstance(request, Load | Generate | Count):
            reply = None if isinstance(request, Load) else request.id
            self._put(Failed(reply, "died", "The engine is not running."))

    def _put(self, event: Event) -> None:
        """Add an event of this process."""
        self._own.put(event)
        self._arrived(event)

    def _arrived(self, message: Any) -> None:
        self._listener(message)
