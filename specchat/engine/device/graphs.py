"""CUDA graphs by key: a body is captured at its first use and replayed after; off CUDA it simply runs."""

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor


class Graphs:
    """Bodies launch kernels on fixed buffers and read nothing back; all graphs share one memory pool."""

    def __init__(self, device: torch.device, state: Sequence[Tensor], captured: bool = True) -> None:
        """`state` are the tensors that a body advances: a trial run before capture leaves them as they were.

        With `captured` false every body runs eagerly, for comparison.
        """
        self.captured = captured and device.type == "cuda"
        self._state = list(state)
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.captured else None

    def run(self, key: Hashable, body: Callable[[], None]) -> None:
        """Do what `body` does; the same key must always come with the same body."""
        if not self.captured:
            body()
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(body)
        self._graphs[key].replay()

    def _capture(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        # Kernels compile and load at their first launch, which a capture does not allow: one run goes before.
        kept = [t.clone() for t in self._state]
        body()
        for tensor, before in zip(self._state, kept, strict=True):
            tensor.copy_(before)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            body()
        return graph

    def __len__(self) -> int:
        return len(self._graphs)
