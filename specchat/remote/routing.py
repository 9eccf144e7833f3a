"""An engine port that sends each pair to where it runs: an engine of this machine, or a server elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from specchat.engine.protocol.events import Counted, Event, Failed, Finished
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Count, Generate, Load, Request

END_S = 0.5
"""Seconds that the replies of the engine before have to end when a pair goes to the other one."""
MOST_PICTURES = 128 << 20
"""Bytes of a request's pictures; messages between processes have twice as many at most."""


class RoutingEngine:
    """An `EnginePort` over two others, each made when its first pair is loaded. One is in use at a time."""

    def __init__(self, local: Callable[[], EnginePort], remote: Callable[[], EnginePort], first: PairSpec) -> None:
        """`local` and `remote` make the engines; `first` is the pair that is to be loaded first."""
        self._make = {False: local, True: remote}
        self._made: dict[bool, EnginePort] = {}
        self._elsewhere = _elsewhere(first)
        self._listener: Callable[[Any], object] = lambda _: None
        self._open: dict[int, Generate | Count] = {}
        """Requests that have not ended, by id."""
        self._left: list[Event] = []
        """Last events of the engine before."""

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
            self._left += self._ends() if self._elsewhere in self._made else []
            self.close()
            self._elsewhere = _elsewhere(request.pair)
            self.start()
        if isinstance(request, Generate | Count):
            if refusal := self._refusal(request.messages):
                self._left.append(failed := Failed(request.id, "request", refusal))
                self._listener(failed)
                return
            self._open[request.id] = request
        self._port.send(request)

    def _refusal(self, messages: Sequence[Message]) -> str:
        """The reason why the pictures of messages cannot be sent; empty if they can."""
        size = sum(len(picture.data) for message in messages for picture in message.pictures)
        if size > MOST_PICTURES:
            return f"The pictures of this chat have over {MOST_PICTURES >> 20} MiB. Start a new chat, or send fewer."
        return ""

    def poll(self) -> list[Event]:
        left, self._left = self._left, []
        return [*left, *map(self._seen, self._port.poll())]

    def listen(self, arrived: Callable[[Any], object]) -> None:
        self._listener = arrived
        for port in self._made.values():
            port.listen(arrived)

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        while self._left:
            yield self._left.pop(0)
        yield from map(self._seen, self._port.events(timeout))

    def restart(self) -> None:
        self._open.clear()
        self._port.restart()

    def close(self) -> None:
        for port in self._made.values():
            port.close()

    def _seen(self, event: Event) -> Event:
        if isinstance(event, Failed) and event.kind == "died":
            self._open.clear()
        elif isinstance(event, Finished | Failed | Counted) and event.id is not None:
            self._open.pop(event.id, None)
        return event

    def _ends(self) -> list[Event]:
        """Stop what the engine in use writes; its last events, with an end for each open request."""
        found = [self._seen(event) for event in self._port.poll()]
        replies = [id for id, request in self._open.items() if isinstance(request, Generate)]
        for id in replies:
            self._port.send(Cancel(id))
        by = monotonic() + END_S
        while not self._open.keys().isdisjoint(replies) and (room := by - monotonic()) > 0:
            for event in self._port.events(room):
                found.append(self._seen(event))
                if self._open.keys().isdisjoint(replies):
                    break
            else:
                break
        found += [Failed(id, "internal", "Stopped: another model was chosen.") for id in self._open]
        self._open.clear()
        return found


def _elsewhere(pair: PairSpec) -> bool:
    return pair.target.server is not None
