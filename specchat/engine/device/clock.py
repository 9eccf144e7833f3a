"""Durations of the parts of a step, on the device's own clock if it has one."""

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import torch

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


class Clock:
    """Timer of one step at a time: start, drafted, verified; times in milliseconds."""

    def __init__(self, device: torch.device) -> None:
        # Blocking events let the host sleep; others keep a core busy until the device is done.
        made = (torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(3))
        self._events = list(made) if device.type == "cuda" else []
        self._waiting = SpinWait()
        self._device = device
        self._times = [0.0, 0.0, 0.0]

    def start(self) -> None:
        self._mark(0)

    def drafted(self) -> None:
        self._mark(1)

    def verified(self) -> None:
        self._mark(2)

    def passed(self) -> bool:
        """Return true if the step has ended."""
        return not self._events or self._events[2].query()

    def wait(self) -> tuple[float, float]:
        """Wait for the step to end; return the times of drafting and of verifying in milliseconds."""
        if self._events:
            self._waiting.wait(self._events[2])
            start, drafted, verified = self._events
            return start.elapsed_time(drafted), drafted.elapsed_time(verified)
        start_s, drafted_s, verified_s = self._times
        return 1e3 * (drafted_s - start_s), 1e3 * (verified_s - drafted_s)

    def _mark(self, index: int) -> None:
        if self._events:
            self._events[index].record(torch.cuda.current_stream(self._device))
        else:
            self._times[index] = perf_counter()


class Clocks:
    """The clocks of two steps: one may be read while the other runs.

    Attributes:
        turn: index of the clock and report of the step begun last.
    """

    def __init__(self, device: torch.device) -> None:
        self._clocks = Clock(device), Clock(device)
        self.turn = 0

    @property
    def last(self) -> Clock:
        """The clock of the step begun last."""
        return self._clocks[self.turn]

    def swap(self) -> None:
        """Begin another step."""
        self.turn = 1 - self.turn
