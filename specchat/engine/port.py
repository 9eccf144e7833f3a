"""The engine as its users see it: the worker process, a scripted fake and a replayed trace all look like this."""

from collections.abc import Iterator
from typing import Protocol

from specchat.engine.api import Event, Request


class EnginePort(Protocol):
    """Requests go in without waiting, events come out in order. All methods are called from one thread."""

    @property
    def alive(self) -> bool:
        """Whether requests can be answered now."""
        ...

    def start(self) -> None:
        """Start the worker if none runs; returns at once, loading is asked for with a `Load`."""
        ...

    def send(self, request: Request) -> None:
        """Pass a request on; never blocks. With a dead worker the answer is a `Failed` event of kind "died"."""
        ...

    def poll(self) -> list[Event]:
        """All events that arrived since the last call, oldest first; never blocks.

        A worker that died shows once as `Failed(id, "died", ...)`, `id` being the reply it was writing or None.
        """
        ...

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they arrive, blocking up to `timeout` seconds for each; ends after that or at a death."""
        ...

    def restart(self) -> None:
        """Kill what is left of the worker, start a fresh one and load the last pair again."""
        ...

    def close(self) -> None:
        """End the worker; kills it when it does not answer in time."""
        ...
