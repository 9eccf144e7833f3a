"""An engine port that sends each pair to where it runs: an engine of this machine, or a server elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any

from specchat.engine.events import Event
from specchat.engine.pair import PairSpec
from specchat.engine.port import EnginePort
from specchat.engine.requests import Load, Request


class RoutingEngine:
    """An `EnginePort` over two others, each made when its first pair is loaded. One is in use at a time."""

    def __init__(self, local: Callable[[], EnginePort], remote: Callable[[], EnginePort], first: PairSpec) -> None:
        """`local` and `remote` make the engines; `first` is the pair that is to be loaded first."""
        self._make = {False: local, True: remote}
        self._made: dict[bool, EnginePort] = {}
        self._elsewhere = _elsewhere(first)
        self._listener: Callable[[Any], object] = lambda _: None

    @property
    def alive(self) -> bool:
        return self._elsewhere in self._made and self._port.alive

    @property
    def _port(self) -> EnginePort:
        """The engine in use."""
        if self._elsewhere not in self._made:
            port = self._made[self._elsewhere] = self._make[self._elsewhere]()
            port.listen(self._listener)
        return self._made[self._elsewhere]

    def start(self) -> None:
        self._port.start()

    def send(self, request: Request) -> None:
        if isinstance(request, Load) and _elsewhere(request.pair) != self._elsewhere:
            self.close()
            self._elsewhere = _elsewhere(request.pair)
            self.start()
        self._port.send(request)

    def poll(self) -> list[Event]:
        return self._port.poll()

    def listen(self, arrived: Callable[[Any], object]) -> None:
        self._listener = arrived
        for port in self._made.values():
            port.listen(arrived)

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        return self._port.events(timeout)

    def restart(self) -> None:
        self._port.restart()

    def close(self) -> None:
        for port in self._made.values():
            port.close()


def _elsewhere(pair: PairSpec) -> bool:
    return pair.target.server is not None
