"""Waits of the host for the end of a pass: a short spin, then sleep."""

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

SPIN_S = 200e-6
"""Longest spin. Waking takes 50 to 100 us, which counts beside a wait that is about as short."""


class PassEnd(Protocol):
    """The part of `torch.cuda.Event` used here, of an event with `blocking`. Both raise errors of the device."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...


class SpinWait:
    """Waits for events of one kind.

    A wait spins as long as the last one took, and sleeps after that. It does not spin where the last one took longer
    than SPIN_S: then the device has other work, or waking hardly counts.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """Initialise; `clock` returns seconds."""
        self._clock = clock
        self._last = 0.0
        """Seconds that the last wait took."""

    def wait(self, event: PassEnd) -> None:
        """Return when the work before `event` is done."""
        begun = self._clock()
        end = begun + (self._last if self._last <= SPIN_S else 0.0)
        while not (done := event.query()) and self._clock() < end:
            pass
        if not done:
            event.synchronize()
        self._last = self._clock() - begun
