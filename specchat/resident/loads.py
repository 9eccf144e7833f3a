"""The loads of a worker that have not ended, and who hears of each."""

from collections import deque
from collections.abc import Iterable
from dataclasses import field
from typing import Generic, TypeVar

from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Failed, Loaded, Loading
from specchat.engine.protocol.pair import PairSpec

C = TypeVar("C")


@dataclass
class PendingLoad(Generic[C]):
    """A load.

    Attributes:
        askers: the clients that asked for it.
        users: those to which `before` is enough, which is loaded for them if the load fails.
    """

    askers: list[C] = field(default_factory=list)
    users: list[C] = field(default_factory=list)
    before: PairSpec | None = None


class PendingLoads(Generic[C]):
    """The loads of a worker, the oldest first; one that comes before it has ended replaces what is loaded."""

    def __init__(self) -> None:
        self._loads = deque[PendingLoad[C]]()

    def __bool__(self) -> bool:
        return bool(self._loads)

    def add(self, askers: Iterable[C] = (), users: Iterable[C] = (), before: PairSpec | None = None) -> None:
        """Begin a load."""
        self._loads.append(PendingLoad([*askers], [*users], before))

    def ask(self, client: C, shorter: PairSpec | None = None) -> None:
        """Have a client hear of the latest load as one that asked for it, or for a `shorter` context of its pair.

        If the load fails, the longest of these is loaded for all of them.
        """
        load = self._loads[-1]
        load.users = [other for other in load.users if other is not client]
        (load.askers if shorter is None else load.users).append(client)
        if shorter is not None and (load.before is None or load.before.fits_in(shorter.wanted_context)):
            load.before = shorter

    def remove(self, client: C) -> None:
        """Note that a client is gone."""
        for load in self._loads:
            load.askers, load.users = ([one for one in some if one is not client] for some in (load.askers, load.users))

    def clear(self) -> None:
        """Forget all: the worker is gone."""
        self._loads.clear()

    def hearers(self, event: Loading | Loaded | Failed) -> list[C]:
        """The clients of an event of the first load; a failure is told to those that asked alone."""
        if not self._loads:
            return []
        load = self._loads[0]
        return [*load.askers, *([] if isinstance(event, Failed) else load.users)]

    def end(self, event: Loaded | Failed) -> PendingLoad[C]:
        """End the first load. Return the pair to load again after a failure, and its users; without a pair none."""
        load = self._loads.popleft() if self._loads else PendingLoad[C]()
        failed = isinstance(event, Failed) and load.before is not None and load.users
        return PendingLoad(load.users, before=load.before) if failed else PendingLoad()
