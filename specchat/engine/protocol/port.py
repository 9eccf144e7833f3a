"""The interface of an engine: a worker process, or a script in tests."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from specchat.engine.protocol.events import Event
from specchat.engine.protocol.requests import Request


class EnginePort(Protocol):
    """Takes requests without blocking, and returns events in order. Call all methods from one thread."""

    @property
    def alive(self) -> bool:
        """True if requests can be answered now."""
        ...

    def start(self) -> None:
        """Start the worker if none runs; returns at once. Send a `Load` to load a pair."""
        ...

    def send(self, request: Request) -> None:
        """Send a request; never blocks. A dead worker answers with a `Failed` event of kind "died"."""
        ...

    def poll(self) -> list[Event]:
        """All events that arrived since the last call, oldest first; never blocks.

        A dead worker gives one `Failed(id, "died", ...)`, with the interrupted reply or None.
        """
        ...

    def listen(self, arrived: Callable[[Any], object]) -> None:
        """Have `arrived` called, from any thread, with each message that brings events for `poll`."""
        ...

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they arrive; ends after `timeout` seconds without one, or at a death."""
        ...

    def restart(self) -> None:
        """Kill the worker, start a new one and reload the last pair."""
        ...

    def close(self) -> None:
        """End the worker; kill it if it does not answer in time."""
        ...
