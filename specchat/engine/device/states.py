"""Recorded hidden states between the layers, in static buffers for heads."""

from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.kernels.verify_state import VerifyState


class States:
    """Hidden states after some of the layers, one for each KV entry.

    Captured passes write them in plain torch, without waiting for the host.
    """

    def __init__(
        self, layers: Sequence[int], hidden: int, capacity: int, rows: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate `capacity` states of `hidden` values after each of `layers` counts; a pass has `rows` at most."""
        self.layers = tuple(sorted(set(layers)))
        self._kept = torch.zeros(len(self.layers), capacity, hidden, device=device, dtype=dtype)
        self._offsets = torch.arange(rows, device=device)

    def put(self, layer: int, residual: Tensor, start: Tensor, rows: int) -> None:
        """Record the first rows of `residual` float32 [>= rows, hidden] as the states from `start` int32 [1] on."""
        if layer in self.layers:
            kept = self._kept[self.layers.index(layer)]
            # Rows that pad a prompt's pass may lie beyond the end, where no text is.
            slots = (start + self._offsets[:rows]).clamp_(max=len(kept) - 1)
            kept.index_copy_(0, slots, residual[:rows].to(kept.dtype))

    def keep(self, state: VerifyState, rows: int) -> None:
        """After `commit`, move the states of the accepted nodes together, from node 0 on.

        Before, node i is i positions after node 0, as in the cache (`kernels.keep`).
        """
        # `commit` has already counted the emitted tokens.
        start, places = state.length - state.result[2], self._offsets[:rows]
        nodes = torch.where(state.kept[:rows] < 0, places, state.kept[:rows])
        self._kept.index_copy_(1, start + places, self._kept.index_select(1, start + nodes))

    @property
    def entries(self) -> Tensor:
        """All states, by position in the second place."""
        return self._kept

    def at(self, layer: int, first: int, last: int) -> Tensor:
        """Return the states float32 [last - first, hidden] at first, ..., last - 1; later passes may change them."""
        return self._kept[self.layers.index(layer), first:last].float()

    def picked(self, layer: int, positions: Tensor) -> Tensor:
        """Return the states float32 [positions, hidden] at `positions` int64 on the device."""
        return self._kept[self.layers.index(layer)].index_select(0, positions).float()

    def memory(self) -> int:
        """Bytes held."""
        return self._kept.numel() * self._kept.element_size()
