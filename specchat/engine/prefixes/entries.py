"""Copies of tensors in one piece of main memory."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from specchat.engine.hardware.page_locked import roomy
from specchat.engine.model.copies import copy_parts

ALIGNMENT = 64
"""Bytes at a multiple of which each tensor begins."""
Shape = tuple[str, tuple[int, ...]]
"""Name of a dtype in torch, and sizes."""


class PackedCopies:
    """Copies of tensors in one piece of main memory, uint8 `whole`."""

    def __init__(self, whole: Tensor, shapes: Sequence[Shape]) -> None:
        self.whole, self.shapes, self.tensors = whole, tuple(shapes), list[Tensor]()
        first = 0
        for kind, sizes in shapes:
            dtype = getattr(torch, kind)
            size = prod(sizes) * dtype.itemsize
            self.tensors.append(whole[first : first + size].view(dtype).view(sizes))
            first += -(-size // ALIGNMENT) * ALIGNMENT

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "PackedCopies":
        """Copy `tensors`. Waits for their device."""
        shapes = [shape_of(tensor) for tensor in tensors]
        packed = cls(roomy(bytes_of(shapes), tensors[0].device if tensors else torch.device("cpu")), shapes)
        copy_parts(packed.tensors, tensors)
        return packed


def shape_of(tensor: Tensor) -> Shape:
    """The form of a tensor."""
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def bytes_of(shapes: Sequence[Shape]) -> int:
    """Bytes of tensors, each in whole ALIGNMENT."""
    sizes = (prod(sizes) * getattr(torch, kind).itemsize for kind, sizes in shapes)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
