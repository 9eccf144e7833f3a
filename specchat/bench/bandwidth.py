"""Bytes a second that a processor or a GPU reads of its memory, which bound a step of one token."""

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor

SECONDS = 1.0
MEBIBYTES = 256
"""Size of what is read: more than any cache holds."""
LEAST_READS = 4


def read_bandwidth(device: torch.device, clock: Callable[[], float] = perf_counter) -> float:
    """Bytes a second: the fastest of the reads that SECONDS have room for, as a decoder reads weights.

    On a processor a block is summed, on all threads that torch has; on a GPU one is copied, which reads and writes it.
    """
    size = MEBIBYTES << 20
    if device.type == "cuda":
        block = torch.zeros(size, dtype=torch.uint8, device=device)
        return 2 * size / _fastest(lambda: _copied(block), clock)
    numbers = torch.ones(size // 4)  # pages of zeros would all be one
    return size / _fastest(numbers.sum, clock)


def _copied(block: Tensor) -> None:
    block.clone()
    torch.cuda.synchronize(block.device)


def _fastest(read: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of the fastest read."""
    end, best, count = clock() + SECONDS, float("inf"), 0
    while count < LEAST_READS or clock() < end:
        begun = clock()
        read()
        best, count = min(best, clock() - begun), count + 1
    return best
