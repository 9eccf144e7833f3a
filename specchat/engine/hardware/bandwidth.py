"""Bytes a second that a processor reads of its memory, which bound a step of one token."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from time import perf_counter

SECONDS = 0.5
"""Length of a measurement; there are two."""
MEBIBYTES, PART_MEBIBYTES = 256, 8
"""Size of what is read, more than any cache holds, and of a part, which is read before another program has its turn."""
LEAST_READS = 4
QUICK = 0.1
"""Share of the reads that are faster than the one that counts: a single one may have found its part in a cache."""


def processor_bandwidth(clock: Callable[[], float] = perf_counter, seconds: float | None = None) -> float:
    """Bytes a second, as a decoder reads weights; other programs change them little.

    Parts of a block are summed, on one thread and on one for each core: on a busy machine threads wait for each other.
    """
    size, seconds = MEBIBYTES << 20, SECONDS if seconds is None else seconds
    import numpy as np

    part = min(MEBIBYTES, PART_MEBIBYTES) << 20
    parts = np.ones((size // part, part // 4), np.float32)  # pages of zeros would all be one
    rates = [part / quick([one.sum for one in parts], clock, seconds)]
    if (cores := min(os.cpu_count() or 1, len(parts))) > 1:
        batches = [parts[first : first + cores] for first in range(0, len(parts) - cores + 1, cores)]
        with ThreadPoolExecutor(cores) as pool:
            reads = [partial(_summed, pool, batch) for batch in batches]
            rates.append(cores * part / quick(reads, clock, seconds))
    return max(rates)


def _summed(pool: ThreadPoolExecutor, batch: Iterable[object]) -> None:
    import numpy as np

    list(pool.map(np.sum, batch))


def quick(reads: Iterable[Callable[[], object]], clock: Callable[[], float], seconds: float) -> float:
    """Seconds of a read that is among the fastest."""
    end, times = clock() + seconds, list[float]()
    for read in cycle(reads):
        begun = clock()
        read()
        ended = clock()
        times.append(ended - begun)
        if len(times) >= LEAST_READS and ended >= end:
            break
    return sorted(times)[int(QUICK * len(times))]
