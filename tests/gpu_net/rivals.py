"""Programs of one launch at shapes that no memory is there for: none may write what another one reads or writes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.gpu_net.addresses import Addresses, Program
from tests.gpu_net.runtime import Launch

Pointers = NDArray[np.uint64]
APART = {"begins": 0, "ends": 1}
"""Arguments with places that the tiles of a launch must have apart, each its own: its number, and how much is added."""


@dataclass
class Accesses:
    """Reads and writes of one program: pointers, and the bytes of each."""

    program: Program
    reads: list[tuple[Pointers, int]] = field(default_factory=list)
    writes: list[tuple[Pointers, int]] = field(default_factory=list)


@dataclass
class Rivals(Addresses):
    """Programs beside the first one, and at the ends of each axis, where a row of them meets the next."""

    _accesses: list[Accesses] = field(default_factory=list)

    def programs(self, launch: Launch) -> list[Program]:
        chosen = set(super().programs(launch))
        for axis, size in enumerate(launch.grid):
            chosen |= {tuple(place if one == axis else 0 for one in range(3)) for place in (min(1, size - 1), size - 1)}
        return sorted(chosen)

    def passes(self, *bounds: Any) -> Iterator[int]:
        """The first and the last one: what a loop writes goes on evenly."""
        every = range(*map(index, bounds))
        yield from every if len(every) <= 2 else (every[0], every[-1])

    def begin(self, program: Program) -> None:
        self._accesses.append(Accesses(program))

    def read(self, name: str, places: NDArray[np.int64]) -> float | NDArray[np.int64]:
        return places + APART[name] if name in APART else super().read(name, places)

    def run(self, launch: Launch) -> None:
        self._accesses = []
        super().run(launch)
        unit = min((size for one in self._accesses for _, size in one.writes), default=0)
        if not unit:
            return
        written = [pieces(one.writes, unit) for one in self._accesses]
        read = [pieces([(p, size) for p, size in one.reads if self._meets(p, written)], unit) for one in self._accesses]
        for one, other in permutations(range(len(written)), 2):
            if one < other:
                self._tell("two programs write", one, other, written[one], written[other])
            self._tell("a program writes what another reads", one, other, written[one], read[other])

    def looked(self, pointers: Pointers, mask: Any, size: int, writes: bool = False) -> str:
        chosen = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)]
        if chosen.size:
            accesses = self._accesses[-1]
            (accesses.writes if writes else accesses.reads).append((chosen, size))
        return super().looked(pointers, mask, size, writes)

    def _meets(self, pointers: Pointers, written: list[Pointers]) -> bool:
        """True if a read may be of something that is written."""
        return any(len(one) and pointers.min() <= one[-1] and pointers.max() >= one[0] for one in written)

    def _tell(self, words: str, one: int, other: int, mine: Pointers, theirs: Pointers) -> None:
        if not (len(mine) and len(theirs)) or mine[0] > theirs[-1] or mine[-1] < theirs[0]:
            return
        both = np.intersect1d(mine, theirs, assume_unique=True)
        if both.size:
            programs = " and ".join(str(self._accesses[number].program) for number in (one, other))
            self.note(f"{words} {self.name_of(both[0])}, {programs}")


def pieces(accesses: list[tuple[Pointers, int]], unit: int) -> Pointers:
    """The pieces of `unit` bytes of all accesses, in order, each once; accesses that are narrower are whole pieces."""
    found = [
        (pointers[:, None] + np.arange(0, size, unit, dtype=np.uint64)).reshape(-1) // np.uint64(unit)
        for pointers, size in accesses
    ]
    return np.unique(np.concatenate(found)) * np.uint64(unit) if found else np.empty(0, np.uint64)
