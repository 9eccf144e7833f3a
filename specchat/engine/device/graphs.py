"""CUDA graphs by key: a body is captured at its first use and replayed after; off CUDA it runs directly."""

import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.hardware.out_of_memory import ran_out


def current(device: torch.device) -> AbstractContextManager[object]:
    """Select the GPU for Triton launches and events in this thread."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Between(NamedTuple):
    """Work between two graphs of a body, such as that of another GPU."""

    replay: Callable[[], None]


class Graphs:
    """CUDA graphs of bodies that launch kernels on fixed buffers and read nothing back. They share a memory pool."""

    def __init__(self, device: torch.device, state: Sequence[Tensor], captured: bool = True) -> None:
        """`state` are the tensors that a body advances; they are restored after the trial run before a capture.

        With `captured` false every body runs eagerly, for comparison.
        """
        self.captured = captured and device.type == "cuda"
        self._device = device
        self._state = list(state)
        self._graphs: dict[Hashable, list[torch.cuda.CUDAGraph | Between]] = {}
        self._without: set[Hashable] = set()
        """Keys of bodies for whose graph there was no room."""
        self._parts: list[torch.cuda.CUDAGraph | Between] | None = None
        """Parts of the body that is being captured."""
        self._open: torch.cuda.CUDAGraph | None = None
        """The graph that is being captured."""
        if self.captured:
            with current(device):
                self._pool = torch.cuda.graph_pool_handle()
                # torch's own capture stream is on the GPU of the first capture.
                self._stream = torch.cuda.Stream(device)

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        """Run `body` as a graph; the same key must always have the same body.

        Raises:
            RuntimeError: no room for the graph, which is discarded.
        """
        with current(self._device):
            if not self.captured:
                body()
                return
            if key not in self._graphs:
                self._graphs[key] = self._capture(body)
            for part in self._graphs[key]:
                part.replay()

    def run_where_room(self, key: Hashable, body: Callable[[], None]) -> None:
        """Run `body` as `run` does, but without a graph once there was no room for it."""
        if key not in self._without:
            try:
                self.run(key, body)
                return
            except RuntimeError as error:  # memory that a graph itself takes is not from torch's allocator
                if not ran_out(error):
                    raise
                self._without.add(key)
        self.eagerly(body)

    def outside(self, work: Callable[[], None]) -> None:
        """Run `work` of a body, which then has one graph before it and one after it."""
        if self._parts is None:
            work()
            return
        self._end()
        self._parts.append(Between(work))
        self._begin(self._parts)

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

    def _capture(self, body: Callable[[], None]) -> list[torch.cuda.CUDAGraph | Between]:
        # Kernels compile and load at their first launch, which a capture forbids: a trial run goes first.
        kept = [t.clone() for t in self._state]
        try:
            body()
        finally:
            for tensor, before in zip(self._state, kept, strict=True):
                tensor.copy_(before)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # the graphs' pool cannot use memory cached by the trial run
        parts: list[torch.cuda.CUDAGraph | Between] = []
        self._parts = parts
        with torch.cuda.stream(self._stream):
            try:
                self._begin(parts)
                body()
            except BaseException:
                # A broken capture raises its own error, which would hide the cause.
                with suppress(RuntimeError):
                    self._end()
                raise
            finally:
                self._parts = None
            self._end()
        return parts

    def _begin(self, parts: list[torch.cuda.CUDAGraph | Between]) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool)
        parts.append(graph)
        self._open = graph

    def _end(self) -> None:
        graph, self._open = self._open, None
        if graph is None:
            return
        with warnings.catch_warnings():
            # A body may begin or end with work outside of graphs.
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            graph.capture_end()

    def __len__(self) -> int:
        return len(self._graphs)
