"""Accesses of one launch that depend on an order which a GPU does not keep: between programs, and between threads."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

THREADS_OF_A_WARP = 32


@dataclass(frozen=True)
class Access:
    """What one instruction of one program reads or writes.

    Attributes:
        program: its number in the launch.
        lanes: uint64, the pointers of all lanes, masked ones among them.
        addresses: uint64 [n], of the lanes that are not masked.
        width: bytes of each.
    """

    program: int
    lanes: np.ndarray
    addresses: np.ndarray
    width: int

    @cached_property
    def low(self) -> int:
        return int(self.addresses.min())

    @cached_property
    def high(self) -> int:
        return int(self.addresses.max()) + self.width

    def units(self, size: int) -> np.ndarray:
        """The addresses of all pieces of `size` bytes, which divides `width`."""
        if size == self.width:
            return self.addresses
        return (self.addresses[:, None] + np.arange(0, self.width, size, dtype=np.uint64)).reshape(-1)


class Hazards:
    """The accesses of a launch by programs of so many warps."""

    def __init__(self, warps: int) -> None:
        self._threads = THREADS_OF_A_WARP * warps
        self._reads: list[Access] = []
        self._writes: list[Access] = []
        self._unordered_reads: list[Access] = []
        """Since the program's last barrier, like the next ones."""
        self._unordered_writes: list[Access] = []

    def barrier(self) -> None:
        """All threads of the program have done what comes before; so has a program that ends."""
        self._unordered_reads.clear()
        self._unordered_writes.clear()

    def read(self, access: Access) -> Iterator[str]:
        """Take in a load; what is wrong with it."""
        if access.addresses.size:
            self._reads.append(access)
            if any(self._by_others(access, write) for write in self._unordered_writes):
                yield "read after write without a barrier"
            self._unordered_reads.append(access)

    def write(self, access: Access, values: np.ndarray) -> Iterator[str]:
        """Take in a store of `values`, one of each address; what is wrong with it."""
        if access.addresses.size:
            self._writes.append(access)
            if disagree(access.addresses, values):
                yield "lanes store different values at one address"
            # The threads of one warp have all read before one of them goes on; of writes they are not told at once.
            if self._threads > THREADS_OF_A_WARP and any(
                self._by_others(access, read) for read in self._unordered_reads
            ):
                yield "write after read without a barrier"
            if any(overlap(access, write) and not alike(access, write) for write in self._unordered_writes):
                yield "write after write without a barrier"
            self._unordered_writes.append(access)

    def between_programs(self) -> Iterator[tuple[str, int]]:
        """What programs do to each other, with an address of each kind."""
        if not self._writes:
            return
        reads = near(self._reads, merged((write.low, write.high) for write in self._writes))
        unit = min(access.width for access in (*self._writes, *reads))
        written, writer = flat(self._writes, unit)
        order = np.argsort(written, kind="stable")
        written, writer = written[order], writer[order]
        twice = (written[1:] == written[:-1]) & (writer[1:] != writer[:-1])
        if twice.any():
            yield "two programs write one address", int(written[1:][twice][0])
        if reads:
            seen, reader = flat(reads, unit)
            # Of several writers the first and the last one tell whether there is another than the reader.
            first = np.searchsorted(written, seen)
            last = np.searchsorted(written, seen, "right") - 1
            found = last >= first
            first, last = np.minimum(first, last), np.maximum(last, 0)
            other = found & ((writer[first] != reader) | (writer[last] != reader))
            if other.any():
                yield "a program reads what another writes", int(seen[other][0])

    def _by_others(self, one: Access, other: Access) -> bool:
        """Whether a load and a store meet in other threads than their own.

        A block that has an element for each thread or more lies alike for both. A smaller one is read by every thread
        and written by one.
        """
        return overlap(one, other) and not (alike(one, other) and one.lanes.size >= self._threads)


def alike(one: Access, other: Access) -> bool:
    """Whether two accesses are of the same pointers lane by lane."""
    return one.lanes.shape == other.lanes.shape and bool((one.lanes == other.lanes).all())


def overlap(one: Access, other: Access) -> bool:
    """Whether two accesses share a byte."""
    if one.high <= other.low or other.high <= one.low:
        return False
    unit = min(one.width, other.width)
    return bool(np.isin(one.units(unit), other.units(unit)).any())


def disagree(addresses: np.ndarray, values: np.ndarray) -> bool:
    """Whether lanes of one store give an address different values, bit for bit."""
    order = np.argsort(addresses, kind="stable")
    same = addresses[order][1:] == addresses[order][:-1]
    if not same.any():
        return False
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")[order]
    return bool((bits[1:] != bits[:-1])[same].any())


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in as few spans as can be."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def near(reads: list[Access], spans: list[tuple[int, int]]) -> list[Access]:
    """The reads that may be of bytes in these spans, which are in order and apart."""
    begins, ends = np.array(spans, np.uint64).T
    # Of the spans the first that ends after a read begins.
    first = np.searchsorted(ends, np.array([read.low for read in reads], np.uint64), "right")
    meets = np.append(begins, np.iinfo(np.uint64).max)[first] < np.array([read.high for read in reads], np.uint64)
    return [read for read, met in zip(reads, meets, strict=True) if met]


def flat(accesses: list[Access], unit: int) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of `unit` bytes of all accesses, and the program of each."""
    pieces = [access.units(unit) for access in accesses]
    programs = np.repeat([access.program for access in accesses], [len(one) for one in pieces])
    return np.concatenate(pieces), programs
