"""Memory of a text on a device: KV entries, recurrent states, recorded hidden states."""

from typing import NamedTuple

from specchat.engine.device.attention import KvCaches, Placed
from specchat.engine.device.recurrent import Recurrent
from specchat.engine.device.states import States
from specchat.engine.model.copies import CacheEntries, Tail


class TextMemory(NamedTuple):
    """Static buffers for one text.

    Attributes:
        states: recorded hidden states, if any.
    """

    caches: KvCaches
    recurrent: Recurrent | None
    states: States | None

    @property
    def entries(self) -> CacheEntries:
        """Entries by position."""
        states = [] if self.states is None else [self.states.entries]
        return CacheEntries([*self.caches.parts(rings=False), *states])

    def tail(self, furthest: int) -> Tail | None:
        """Rings and recurrent states; None without. `furthest` positions have been written at once."""
        rings, states = self.caches.parts(rings=True), self.recurrent
        if not rings and states is None:
            return None
        numbers = () if states is None else (states.base, *states.checkpoints[-1:])
        return Tail([*rings, *([] if states is None else states.tail())], (furthest, *numbers))

    def resume(self, tail: Tail) -> Tail:
        """Take over such a tail, and return it without what was taken."""
        rings = self.caches.parts(rings=True)
        for ring, part in zip(rings, tail.tensors, strict=False):
            ring.copy_(part)
        rest = tail.tensors[len(rings) :]
        if self.recurrent is not None:
            rest = rest[self.recurrent.resume(rest, tail.numbers[2:]) :]
        return tail._replace(tensors=rest)

    @property
    def size(self) -> int:
        """Bytes held for this text alone."""
        return self.caches.size + sum(part.memory() for part in self[1:] if part is not None)


class TextRows(NamedTuple):
    """Rows of a pass, from row `first` on, that go on from a text."""

    first: int
    at: Placed
    memory: TextMemory
