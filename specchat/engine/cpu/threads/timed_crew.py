"""A crew that learns from the times of passes how many of its threads make them fastest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specchat.engine.cpu.primitives.records import Structure
from specchat.engine.cpu.threads.crew import Crew
from specchat.engine.cpu.threads.tuning import ByRows

LOAD_PASSES, LOAD_SECONDS = (3, 20), 0.005
"""Least and most passes that time a number of threads at load, and the seconds that the passes must take in all."""


class TimedCrew(Crew):
    """Crew with a best number of threads for passes over few rows, and one for passes over many."""

    def __init__(self, few: int, many: int, clock: Callable[[], float]) -> None:
        """Start `many` threads, `few` of which at most work on a pass over few rows; `clock` gives seconds."""
        super().__init__(many)
        self._limits, self._clock = (few, many), clock
        self._fixed = 0
        """Threads for the current pass; 0 for the best number so far."""

    def tune(self, run: Callable[[int], object]) -> None:
        """Find the best numbers to begin with by `run`, which makes a pass over so many rows."""

        def seconds(rows: int, count: int) -> float:
            self._fixed = count
            times: list[float] = []
            for trial in range(1, LOAD_PASSES[1] + 1):
                started = self._clock()
                run(rows)
                times.append(self._clock() - started)
                if trial >= LOAD_PASSES[0] and sum(times) >= LOAD_SECONDS:
                    break
            return min(times)

        self._tuners = ByRows(*self._limits, seconds)
        self._fixed = 0

    @property
    def most(self) -> int:
        """Most threads that work on a pass."""
        return self._tuners.most

    def most_of(self, rows: int) -> int:
        """Most threads that work on a pass over `rows` rows."""
        return self._tuners.of(rows).most

    def settle(self, count: int) -> None:
        """Use `count` threads from here on, at most those that there are."""
        self._tuners.settle(min(max(count, 1), self.size))

    @contextmanager
    def timing(self, rows: int) -> Iterator[None]:
        """Time a pass, to learn the best number of threads for so many rows."""
        threads = self._tuners.of(rows)
        started = self._clock()
        self._fixed = threads.next
        try:
            yield
        finally:
            self._fixed = 0
        threads.took(rows, self._clock() - started)

    def run_rows(self, record: Structure, rows: int) -> None:
        """Run a pass over `rows` rows in the best number of threads."""
        self.active = self._fixed or self._tuners.of(rows).settled
        self.run(record)
