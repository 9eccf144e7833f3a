"""Pointers that know their tensor, so that an access outside it, or by no pointer at all, is seen.

A kernel computes with `number of the tensor << SHIFT` plus a byte offset, raised by BIAS so that a negative offset
keeps the number. An access looks the tensor up and goes to its memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

SHIFT, BIAS = 46, 1 << 45


@dataclass(frozen=True)
class Extent:
    """The bytes of memory that one tensor argument of a launch may be read and written in."""

    name: str
    start: int
    size: int

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "Extent":
        last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return cls(name, tensor.data_ptr(), (last + 1) * tensor.element_size() if tensor.numel() else 0)


@dataclass(frozen=True)
class Resolved:
    """Where an access goes.

    Attributes:
        addresses: uint64 of the pointers' shape, real ones where `inside`.
        inside: bool of the same shape, lanes that are wanted and may be accessed.
        faults: (kind, detail) of the others.
    """

    addresses: np.ndarray
    inside: np.ndarray
    faults: list[tuple[str, str]]


class Extents:
    """The tensors of one launch."""

    def __init__(self) -> None:
        self._extents: list[Extent] = []

    def tag(self, name: str, tensor: Tensor) -> np.ndarray:
        """A pointer to the start of `tensor`: uint64 [1]."""
        self._extents.append(Extent.of(name, tensor))
        return np.array([(len(self._extents) << SHIFT) + BIAS], np.uint64)

    def resolve(self, pointers: np.ndarray, mask: np.ndarray, width: int) -> Resolved:
        """Look up the lanes of an access of `width` bytes each that the bool `mask` leaves."""
        return self._all_inside(pointers, mask, width) or self._lane_by_lane(pointers, mask, width)

    def _all_inside(self, pointers: np.ndarray, mask: np.ndarray, width: int) -> Resolved | None:
        """Where an access goes of which all lanes are wanted and are inside of one tensor, as mostly."""
        if not pointers.size or not mask.all():
            return None
        low, high = int(pointers.min()), int(pointers.max())
        one = (low >> SHIFT) - 1
        if not 0 <= one < len(self._extents) or one != (high >> SHIFT) - 1:
            return None
        extent, base = self._extents[one], ((one + 1) << SHIFT) + BIAS
        if low < base or high - base + width > extent.size:
            return None
        addresses = pointers - np.uint64((base - extent.start) % (1 << 64))
        aligned = not (addresses % np.uint64(width)).any()
        return Resolved(addresses, np.ascontiguousarray(mask), []) if aligned else None

    def _lane_by_lane(self, pointers: np.ndarray, mask: np.ndarray, width: int) -> Resolved:
        number = (pointers >> np.uint64(SHIFT)).astype(np.int64) - 1
        offset = (pointers & np.uint64((1 << SHIFT) - 1)).astype(np.int64) - BIAS
        addresses, inside = np.zeros(pointers.shape, np.uint64), np.zeros(pointers.shape, bool)
        faults = []
        wanted = number[mask]
        # Mostly it is one tensor, which is seen without sorting.
        for one in np.unique(wanted) if wanted.size and (wanted != wanted[0]).any() else wanted[:1]:
            mine = mask & (number == one)
            if not 0 <= one < len(self._extents):
                faults.append(("wild pointer", f"{int(mine.sum())} lanes"))
                continue
            extent = self._extents[one]
            outside = mine & ((offset < 0) | (offset + width > extent.size))
            if outside.any():
                far = offset[outside]
                faults.append(("out of bounds", f"{extent.name} at {far.min()}..{far.max()} of {extent.size} bytes"))
            mine &= ~outside
            addresses[mine] = (offset[mine] + extent.start).astype(np.uint64)
            inside |= mine
            if (addresses[mine] % np.uint64(width)).any():
                faults.append(("misaligned", extent.name))
        return Resolved(addresses, inside, faults)

    def names(self, address: int) -> str:
        """The tensors that a byte of memory belongs to."""
        return ", ".join(dict.fromkeys(self._holding(address)))

    def _holding(self, address: int) -> Iterator[str]:
        return (one.name for one in self._extents if one.start <= address < one.start + one.size)
