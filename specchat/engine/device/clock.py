"""Durations of the parts of a step, on the device's own clock if it has one."""

from time import perf_counter

import torch

from specchat.engine.device.waiting import SpinWait


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
