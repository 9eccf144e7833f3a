"""Measurements in which this program was stopped, as by ctrl+z, are worth nothing: their times hold the pause."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

Measured = TypeVar("Measured")


class Stops:
    """Counts how often this process went on after a stop."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count inside the block, which belongs to the main thread. Windows stops no processes."""
        if sys.platform == "win32":
            yield
            return
        before = signal.signal(signal.SIGCONT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1

    def undisturbed(self, measure: Callable[[], Measured]) -> Measured:
        """Call `measure` until it ran without a stop."""
        while True:
            before, measured = self.count, measure()
            if self.count == before:
                return measured


STOPS = Stops()
"""The stops of this process."""
