"""How long a thread was kept waiting for a processor that other programs had.

Such waits fall on whatever runs, so they tell nothing of how long one kind of step takes beside another.
"""

from os import O_RDONLY, close, pread
from os import open as open_file
from pathlib import Path
from threading import local
from time import perf_counter
from weakref import finalize

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds that the thread ran, those that it waited to run, and how often it ran
(Documentation/scheduler/sched-stats)."""
MOST_BYTES = 128


class Scheduled:
    """The system's file about the thread that opens it."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        try:
            self._file = open_file(path, O_RDONLY)
        except OSError:
            return
        finalize(self, close, self._file)

    def waited_ms(self) -> float:
        """Since the thread began; 0 where the system does not tell."""
        if self._file is None:
            return 0.0
        try:
            return int(pread(self._file, MOST_BYTES, 0).split()[1]) / 1e6
        except (OSError, ValueError, IndexError):
            return 0.0


class Waiting(local):
    """Of each thread that asks."""

    def __init__(self, path: Path = SCHEDULED) -> None:
        self._scheduled = Scheduled(path)
        self._known_ms = 0.0

    def clock(self) -> float:
        """Seconds, but those that the thread waited."""
        while True:
            now, waited_ms = perf_counter(), self._scheduled.waited_ms()
            # Had it waited between the two, the clock would go back.
            if waited_ms == self._known_ms:
                return now - waited_ms / 1e3
            self._known_ms = waited_ms
