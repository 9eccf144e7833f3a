"""Positions of a pass that the host does not know: what all of its layers make of them is computed once."""

from torch import Tensor

Rotations = tuple[Tensor, Tensor]
"""Cosines and signed sines by position."""


class DeviceSlots:
    """Slots of caches and the positions of their rows, int64 [rows] on the device, both modulo the caches' capacity."""

    def __init__(self, slots: Tensor, positions: Tensor, capacity: int) -> None:
        """Initialise; texts shorter than a pass have negative slots, and those at the end of the cache."""
        self.slots = slots % capacity
        self._positions = self.slots if positions is slots else positions % capacity
        self._rotations: dict[int, tuple[Rotations, Rotations]] = {}

    def rotation(self, tables: Rotations) -> Rotations:
        """Rows of `tables` at the positions, the same tensors for each layer with these tables."""
        if id(tables) not in self._rotations:
            cos, sin = (table.index_select(0, self._positions) for table in tables)
            self._rotations[id(tables)] = tables, (cos, sin)
        return self._rotations[id(tables)][1]
