"""Bytes a second that a processor or a GPU reads of its memory, which bound a step of one token."""

from collections.abc import Callable, Iterable
from itertools import cycle
from time import perf_counter

import torch
from torch import Tensor

SECONDS = 0.5
"""Length of a measurement; a processor is measured twice."""
MEBIBYTES, PART_MEBIBYTES = 256, 8
"""Size of what is read, more than any cache holds, and of a part, which is read before another program has its turn."""
LEAST_READS = 4
QUICK = 0.1
"""Share of the reads that are faster than the one that counts: a single one may have found its part in a cache."""


def read_bandwidth(device: torch.device, clock: Callable[[], float] = perf_counter) -> float:
    """Bytes a second, as a decoder reads weights; other programs change them little.

    On a processor parts of a block are summed, on one thread and on all that torch has: on a busy machine threads wait
    for each other. On a GPU a block is copied, which reads and writes it.
    """
    size = MEBIBYTES << 20
    if device.type == "cuda":
        block = torch.zeros(size, dtype=torch.uint8, device=device)
        return 2 * size / _quick([lambda: _copied(block)], clock)
    part = min(MEBIBYTES, PART_MEBIBYTES) << 20
    parts = torch.ones(size // part, part // 4)  # pages of zeros would all be one
    sums, threads, found = [one.sum for one in parts], torch.get_num_threads(), list[float]()
    try:
        for count in sorted({1, threads}):
            torch.set_num_threads(count)
            found.append(part / _quick(sums, clock))
    finally:
        torch.set_num_threads(threads)
    return max(found)


def _copied(block: Tensor) -> None:
    block.clone()
    torch.cuda.synchronize(block.device)


def _quick(reads: Iterable[Callable[[], object]], clock: Callable[[], float]) -> float:
    """Seconds of a read that is among the fastest."""
    end, times = clock() + SECONDS, list[float]()
    for read in cycle(reads):
        begun = clock()
        read()
        ended = clock()
        times.append(ended - begun)
        if len(times) >= LEAST_READS and ended >= end:
            break
    return sorted(times)[int(QUICK * len(times))]
