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
Spans = tuple[Pointers, Pointers]
"""Begins and ends of stretches of bytes, in order and apart."""
EMPTY: Pointers = np.empty(0, np.uint64)
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
        written = [spans(one.writes) for one in self._accesses]
        ends = [(begins[0], ends[-1]) for begins, ends in written if begins.size]
        if not ends:
            return
        first, last = min(begin for begin, _ in ends), max(end for _, end in ends)
        # Most of what is read is written by nobody.
        near = [
            [(p, size) for p, size in one.reads if p.min() < last and p.max() + np.uint64(size) > first]
            for one in self._accesses
        ]
        read = [spans(accesses) for accesses in near]
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

    def _tell(self, words: str, one: int, other: int, mine: Spans, theirs: Spans) -> None:
        both = meeting(mine, theirs)
        if both is not None:
            programs = " and ".join(str(self._accesses[number].program) for number in (one, other))
            self.note(f"{words} {self.name_of(both)}, {programs}")


def spans(accesses: list[tuple[Pointers, int]]) -> Spans:
    """The bytes of all accesses: where stretches of them begin and end, in order and apart."""
    begins, ends = [EMPTY], [EMPTY]
    for pointers, size in accesses:
        apart = np.flatnonzero(np.diff(pointers) != size)
        begins.append(pointers[np.concatenate(([0], apart + 1))])
        ends.append(pointers[np.concatenate((apart, [-1]))] + np.uint64(size))
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    apart = np.flatnonzero(begin[1:] > end[:-1])
    return begin[np.concatenate(([0], apart + 1))[: begin.size]], end[np.concatenate((apart, [-1]))[: end.size]]


def meeting(mine: Spans, theirs: Spans) -> np.uint64 | None:
    """The first byte that both have; None where there is none."""
    (begins, ends), (their_begins, their_ends) = mine, theirs
    if not begins.size:
        return None
    # Of mine the first that ends after theirs begins.
    found = np.searchsorted(ends, their_begins, side="right")
    inside = np.minimum(found, begins.size - 1)
    meet = np.flatnonzero((found < begins.size) & (begins[inside] < their_ends))
    return max(begins[inside[meet[0]]], their_begins[meet[0]]) if meet.size else None
