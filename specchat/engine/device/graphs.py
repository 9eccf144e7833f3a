"""CUDA graphs by key: a body is captured at its first use and replayed after; off CUDA it simply runs."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

import torch
from torch import Tensor


def current(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the one that Triton launches on and that events are recorded on, in this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Graphs:
    """Bodies launch kernels on fixed buffers of one device and read nothing back; all graphs share one memory pool."""

    def __init__(self, device: torch.device, state: Sequence[Tensor], captured: bool = True) -> None:
        """`state` are the tensors that a body advances: a trial run before capture leaves them as they were.

        With `captured` false every body runs eagerly, for comparison.
        """
        self.captured = captured and device.type == "cuda"
        self._device = device
        self._state = list(state)
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        if self.captured:
            with current(device):
                self._pool = torch.cuda.graph_pool_handle()
                # torch's own stream for captures is on the GPU that was captured on first.
                self._stream = torch.cuda.Stream(device)

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        """Do what `body` does; the same key must always come with the same body.

        Raises:
            torch.OutOfMemoryError: there is no room for the graph; nothing is left of it.
        """
        with current(self._device):
            if not self.captured:
                body()
                return
            if key not in self._graphs:
                self._graphs[key] = self._capture(body)
            self._graphs[key].replay()

    def eagerly(self, body: Callable[[], None]) -> None:
        """Do what `body` does, without a graph."""
        with current(self._device):
            body()

    def _capture(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # Kernels compile and load at their first launch, which a capture does not allow: one run goes before.
        kept = [t.clone() for t in self._state]
        body()
        for tensor, before in zip(self._state, kept, strict=True):
            tensor.copy_(before)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # the pool of graphs cannot take what the run before left
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                body()
            except BaseException:
                # A broken capture has an error of its own, which would hide why it broke.
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    def __len__(self) -> int:
        return len(self._graphs)
