"""Entries and tails: the contents of a cache, as they are copied out of it and back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.page_locked import roomy

ALIGNMENT = 64
"""Bytes at a multiple of which each tensor begins."""
Shape = tuple[str, tuple[int, ...]]
"""Name of a dtype in torch, and sizes."""


class Entries(NamedTuple):
    """Tensors [any, positions, any] of a cache, views of all of it: the entry of token p is at position p - `shift`.

    An entry depends on its token and those before it alone.
    """

    tensors: Sequence[Tensor]
    shift: int = 0

    def of(self, first: int, last: int) -> list[Tensor]:
        """Views of the entries of tokens first, ..., last - 1."""
        places = slice(max(0, first - self.shift), max(0, last - self.shift))
        return [tensor[:, places] for tensor in self.tensors]


class Tail(NamedTuple):
    """Windows and recurrent states, from which a text goes on at its end, beside entries by position.

    Only the model that made it knows what `tensors` and `numbers` mean.
    """

    tensors: Sequence[Tensor]
    numbers: tuple[int, ...]


class Copies(ABC):
    """A model whose cache can be copied out and back. One that is not simply reads again."""

    @abstractmethod
    def entries(self) -> Entries:
        """The cache's entries by position."""

    def tail(self, held: int) -> Tail | None:
        """Return the tail of its text of `held` tokens, views; None for a model with entries by position alone."""
        return None

    def reach(self, length: int, held: int, tail: Tail | None) -> int:
        """The most tokens, up to `length`, after which a text may go on from `tail`, or None: from the cache as it is.

        The text had `held` tokens.
        """
        return length

    def resume(self, token_ids: Sequence[int], held: int, tail: Tail | None) -> None:  # noqa: B027
        """Take over `tail`, of a text of `held` tokens, and that the entries are those of `token_ids`."""


class Packed:
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
    def of(cls, tensors: Sequence[Tensor]) -> "Packed":
        """Copy `tensors`. Waits for their device."""
        shapes = [shape_of(tensor) for tensor in tensors]
        packed = cls(roomy(bytes_of(shapes), tensors[0].device if tensors else torch.device("cpu")), shapes)
        for into, tensor in zip(packed.tensors, tensors, strict=True):
            into.copy_(tensor)
        return packed


def shape_of(tensor: Tensor) -> Shape:
    """The form of a tensor."""
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def bytes_of(shapes: Sequence[Shape]) -> int:
    """Bytes of tensors, each in whole ALIGNMENT."""
    sizes = (prod(sizes) * getattr(torch, kind).itemsize for kind, sizes in shapes)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
