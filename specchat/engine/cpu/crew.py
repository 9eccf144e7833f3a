"""Threads that run one compiled function together, and sleep between."""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = tuple[Callable[..., None], tuple[Any, ...]]


class Crew:
    """Up to `size` threads, the caller being one of them; `active` work. What they run must let go of Python's lock."""

    def __init__(self, size: int) -> None:
        self.active = size
        self._jobs: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(size - 1)]
        self._ended = threading.Semaphore(0)
        threads = [
            threading.Thread(target=_work, args=(number, jobs, self._ended), name=f"crew-{number}", daemon=True)
            for number, jobs in enumerate(self._jobs, 1)
        ]
        for thread in threads:
            thread.start()
        # Also at exit, before Python ends: a thread that wakes later is killed, and may take the process with it.
        weakref.finalize(self, _dismiss, self._jobs, threads)

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """function(*arguments, thread, threads) in every active thread; back when all are."""
        for jobs in self._jobs[: self.active - 1]:
            jobs.put((function, (*arguments, self.active)))
        function(*arguments, 0, self.active)
        for _ in range(self.active - 1):
            self._ended.acquire()


def _dismiss(queues: "list[SimpleQueue[Job | None]]", threads: list[threading.Thread]) -> None:
    """Let the threads end, and wait until they have."""
    for jobs in queues:
        jobs.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def _work(number: int, jobs: "SimpleQueue[Job | None]", ended: threading.Semaphore) -> None:
    while (job := jobs.get()) is not None:
        function, (*arguments, threads) = job
        try:
            function(*arguments, number, threads)
        finally:
            ended.release()
