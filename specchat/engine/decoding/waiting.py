"""Waits of a thread for a CPU used by other programs.

Such waits hit any kind of step, so step costs exclude them.
"""

from os import O_RDONLY, close, pread
from os import open as open_file
from pathlib import Path
from threading import local
from time import perf_counter
from weakref import finalize

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds the thread ran, nanoseconds it waited to run, number of runs
(Documentation/scheduler/sched-stats)."""
MOST_BYTES = 128


class Scheduled:
    """The schedstat file of the thread that opens it."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        try:
            self._file = open_file(path, O_RDONLY)
        except OSError:
            return
        finalize(self, close, self._file)

    def waited_ms(self) -> float:
        """Return the milliseconds waited since the thread began; 0 if the system does not provide them."""
        if self._file is None:
            return 0.0
        try:
            return int(pread(self._file, MOST_BYTES, 0).split()[1]) / 1e6
        except (OSError, ValueError, IndexError):
            return 0.0


class Waiting(local):
    """Clock that excludes waits, with state per thread."""

    def __init__(self, path: Path = SCHEDULED) -> None:
        self._scheduled = Scheduled(path)
        self._known_ms = 0.0

    def clock(self) -> float:
        """Return seconds without those that the thread waited."""
        while True:
            now, waited_ms = perf_counter(), self._scheduled.waited_ms()
            # A wait between the two readings would set the clock back.
            if waited_ms == self._known_ms:
                return now - waited_ms / 1e3
            self._known_ms = waited_ms
