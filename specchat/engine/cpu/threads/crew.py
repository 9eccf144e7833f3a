"""Threads that run passes together, and sleep when no pass comes for a while."""

import threading
import weakref
from queue import SimpleQueue
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.records import Structure
from specchat.engine.cpu.threads.dispatch import announce, board, follow, lead, mark_awake, withdraw

AWAKE = 0.002
"""Seconds for which a thread spins for the next pass: about the time between two passes of a small target."""
_TIMED_LOOKS = 2000
"""Looks that are timed to find how long one takes."""

Calls = SimpleQueue[bool]


class Crew:
    """Pool of up to `size` threads with the caller; `active` of them work on a pass."""

    def __init__(self, size: int) -> None:
        self.active = size
        self._board = board(size)
        self._calls: list[Calls] = [SimpleQueue() for _ in range(size - 1)]
        awake = looks_awake() if size > 1 else 0
        threads = [
            threading.Thread(target=_work, args=(self._board, number, calls, awake), name=f"crew-{number}", daemon=True)
            for number, calls in enumerate(self._calls, 1)
        ]
        for thread in threads:
            thread.start()
        # Also at exit, before Python ends: a thread that wakes later is killed, and may crash the process.
        weakref.finalize(self, _end, self._board, self._calls, threads)

    @property
    def size(self) -> int:
        """Number of threads."""
        return len(self._calls) + 1

    def run(self, record: Structure) -> None:
        """Run a pass by its record in every active thread; return when all have ended."""
        if self.active > 1:
            announce(self._board)
            for number, calls in enumerate(self._calls[: self.active - 1], 1):
                if mark_awake(self._board, number):
                    calls.put(True)
        lead(self._board, record.address, self.active)


def looks_awake() -> int:
    """Number of looks for a command that take AWAKE seconds."""
    alone = board(2)
    times = []
    for _ in range(3):
        started = perf_counter()
        follow(alone, 1, 0, _TIMED_LOOKS)
        times.append(perf_counter() - started)
    return max(_TIMED_LOOKS, int(_TIMED_LOOKS * AWAKE / min(times)))


def _end(shared: NDArray[np.int64], all_calls: list[Calls], threads: list[threading.Thread]) -> None:
    """End the threads and join them."""
    withdraw(shared)  # of an interrupted pass
    for calls in all_calls:
        calls.put(False)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def _work(shared: NDArray[np.int64], number: int, calls: Calls, awake: int) -> None:
    command = 0
    while calls.get():
        command = follow(shared, number, command, awake)
