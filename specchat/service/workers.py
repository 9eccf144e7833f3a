"""Workers that doors share: who uses which, and whose events are whose."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specchat.engine.client import EngineClient
from specchat.engine.events import Counted, Event, Failed, Finished, Loaded, Loading, Started
from specchat.engine.pair import PairInfo, PairSpec
from specchat.engine.requests import Cancel, Count, Generate, Load, Request
from specchat.engine.wire import Sealed

MAX_WAITING = 64
"""Replies and counts that a door may wait for at once."""


@dataclass(frozen=True)
class Restart:
    """A door wants its worker started again. `number` comes back in `Restarted`, before which events are of before."""

    number: int


@dataclass(frozen=True)
class Restarted:
    number: int


@dataclass(eq=False)
class Door:
    """A program that uses an engine. `send` takes events, and steps as they came."""

    name: str
    pid: int
    send: Callable[[Any], None]
    worker: "SharedWorker | None" = None
    generation: int = 0
    """The one of its worker that it asked for."""
    lost: bool = False
    """Whether it was told of its worker's end and asked for nothing since."""
    waiting: list[int] = field(default_factory=list)
    """Replies and counts that have not ended, the oldest first."""


class SharedWorker:
    """A worker process with the doors that use it, all of one pair."""

    def __init__(self, log: Path | None, loader: str, arrived: Callable[[Any], object]) -> None:
        self.client = EngineClient(log, loader, sealed=True, arrived=arrived)
        self.pair: PairSpec | None = None
        self.info: PairInfo | None = None
        self.doors: list[Door] = []
        self.generation = 0
        """How often it was started again."""
        self.dead = False
        self._loads: deque[list[Door]] = deque()
        """The doors that wait for each load which has not ended."""

    def load(self, door: Door, pair: PairSpec) -> None:
        """Have `pair` loaded for a door that uses this worker."""
        if self.dead:
            self._begin_again()
            self.pair = None
        self.client.start()
        door.generation, door.lost = self.generation, False
        if pair == self.pair and self.info is not None:
            door.send(Loaded(self.info))
            return
        if pair != self.pair or not self._loads:
            self.pair, self.info = pair, None
            self._loads.append([])
            self.client.send(Load(pair))
        self._loads[-1].append(door)

    def ask(self, door: Door, request: Request) -> None:
        """Pass on a request about replies, counts or remembered chats."""
        if isinstance(request, Generate | Count):
            if len(door.waiting) >= MAX_WAITING:
                door.send(Failed(request.id, "request", f"{MAX_WAITING} requests wait already. Let them end first."))
                return
            door.waiting.append(request.id)
        self.client.send(request)

    def restart(self, door: Door, number: int) -> None:
        """Start the worker again unless that was done since `door` heard of it; the others are told."""
        door.waiting.clear()
        door.send(Restarted(number))
        if self.pair is None:
            return
        if door.generation == self.generation:
            for other in self.doors:
                if other is not door and not other.lost:
                    self._lose(other, Failed(None, "died", "another window restarted it"))
            self._begin_again()
            self.client.restart()
            self._loads.append([])
        self.load(door, self.pair)

    def leave(self, door: Door) -> None:
        """Stop what is written for a door that is gone."""
        self.doors.remove(door)
        for reply in door.waiting:
            self.client.send(Cancel(reply))
        for waiting in self._loads:
            if door in waiting:
                waiting.remove(door)
        door.worker = None
        door.waiting.clear()

    def events(self) -> Iterator[tuple[Door, Event | Sealed]]:
        """What came from the worker, by the doors that it is for."""
        for event in self.client.poll():
            yield from self._event(event)

    def _event(self, event: Event | Sealed) -> Iterator[tuple[Door, Event | Sealed]]:
        match event:
            case Failed(kind="died"):
                self.dead, self.info = True, None
                self._loads.clear()
                for door in self.doors:
                    self._lose(door, event)
            case Loading() | Loaded() | Failed(id=None):
                for door in self._loads[0] if self._loads else ():
                    yield door, event
                if not isinstance(event, Loading):
                    self._loaded(event)
            case Sealed():
                if owner := self._owner(event.reply):
                    yield owner, event
            case Started() | Finished() | Counted() | Failed():
                assert event.id is not None
                if owner := self._owner(event.id):
                    if not isinstance(event, Started):
                        owner.waiting.remove(event.id)
                    yield owner, event
            case _:
                if owner := self._owner(event.id):
                    yield owner, event

    def _loaded(self, event: Loaded | Failed) -> None:
        """The first load ended; what later ones ask for counts where there are any."""
        if self._loads:
            self._loads.popleft()
        if not self._loads:
            self.info = event.info if isinstance(event, Loaded) else None
            self.pair = self.pair if self.info else None

    def _begin_again(self) -> None:
        self.generation += 1
        self._loads.clear()
        self.dead, self.info = False, None

    def _lose(self, door: Door, death: Failed) -> None:
        door.send(replace(death, id=door.waiting[0] if door.waiting else None))
        door.lost = True
        door.waiting.clear()

    def _owner(self, reply: int) -> Door | None:
        return next((door for door in self.doors if reply in door.waiting), None)
