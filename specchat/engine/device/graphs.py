"""CUDA graphs by key: a body is captured at its first use and replayed after; off CUDA it runs directly."""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

import torch
from torch import Tensor


def current(device: torch.device) -> AbstractContextManager[object]:
    """Select the GPU for Triton launches and events in this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Graphs:
    """CUDA graphs of bodies that launch kernels on fixed buffers and read nothing back. They share a memory pool."""

    def __init__(self, device: torch.device, state: Sequence[Tensor], captured: bool = True) -> None:
        """`state` are the tensors that a body advances; they are restored after the trial run before a capture.

        With `captured` false every body runs eagerly, for comparison.
        """
        self.captured = captured and device.type == "cuda"
        self._device = device
        self._state = list(state)
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        if self.captured:
            with current(device):
                self._pool = torch.cuda.graph_pool_handle()
                # torch's own capture stream is on the GPU of the first capture.
                self._stream = torch.cuda.Stream(device)

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        """Run `body` as a graph; the same key must always have the same body.

        Raises:
            torch.OutOfMemoryError: no room for the graph, which is discarded.
        """
        with current(self._device):
            if not self.captured:
                body()
                return
            if key not in self._graphs:
                self._graphs[key] = self._capture(body)
            self._graphs[key].replay()

    def forget(self) -> None:
        """Drop all graphs: bodies that changed are captured anew at their next use."""
        if self._graphs:
            self._graphs.clear()
            with current(self._device):
                # A pool without a graph may be gone.
                self._pool = torch.cuda.graph_pool_handle()

    def eagerly(self, body: Callable[[], None]) -> None:
        """Run `body` without a graph."""
        with current(self._device):
            body()

    def _capture(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # Kernels compile and load at their first launch, which a capture forbids: a trial run goes first.
        kept = [t.clone() for t in self._state]
        body()
        for tensor, before in zip(self._state, kept, strict=True):
            tensor.copy_(before)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # the graphs' pool cannot use memory cached by the trial run
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                body()
            except BaseException:
                # A broken capture raises its own error, which would hide the cause.
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    def __len__(self) -> int:
        return len(self._graphs)
