"""Times of work on a CUDA device, on the device's own clock."""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch

from specchat.bench.summary import Spread

Body = Callable[[int], object]
"""Launches the work once, on copy 0, 1, ... of what it reads."""

WARM_UP = 10
RUNS = 50
QUICK_RUNS = 20
COPIED = 1 << 30
"""Bytes of the copy that measures the bandwidth: far more than any cache."""


class Timer(Protocol):
    """How long a call takes."""

    def time(self, body: Body, copies: int) -> Spread:
        """Microseconds a call, `body` being called with 0 .. copies - 1 in turn, many times.

        Raises:
            RuntimeError: the work cannot be launched, or not be captured.
        """
        ...

    def bandwidth(self) -> float:
        """Bytes a second that a copy within the device's memory reads and writes."""
        ...


class CudaTimer:
    """A run is the replay of one captured graph that calls the body on every copy: no launch from Python is in it."""

    def __init__(self, runs: int) -> None:
        self._runs = runs

    def time(self, body: Body, copies: int) -> Spread:
        # Kernels compile and load at their first launch, which a capture does not allow.
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for copy in range(min(copies, 2)):
                body(copy)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for copy in range(copies):
                body(copy)
        return _spread([time / copies for time in self._replayed(graph.replay)])

    def bandwidth(self) -> float:
        free, _ = torch.cuda.mem_get_info()
        size = min(COPIED, free // 4)
        source = torch.empty(size, dtype=torch.uint8, device="cuda")
        copied = torch.empty_like(source)
        median = _spread(self._replayed(lambda: copied.copy_(source))).median
        return 2 * size / (1e-6 * median)

    def _replayed(self, work: Callable[[], object]) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(self._runs + 1)]
        for _ in range(WARM_UP):
            work()
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        events[-1].synchronize()
        return [1e3 * a.elapsed_time(b) for a, b in pairwise(events)]


def _spread(microseconds: list[float]) -> Spread:
    spread = Spread.of(microseconds)
    assert spread is not None
    return spread
