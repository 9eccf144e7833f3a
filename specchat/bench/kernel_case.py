"""One kernel, or one rival of it, as `bench kernels` measures it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.bench.device_timer import Body
from specchat.engine.kernels.tiles import MOST_ROWS

ROWS = (1, 2, 4, 8, 16, 32, MOST_ROWS)
CYCLED = 1 << 30
"""Bytes that the copies of what a kernel reads fill together: several times any L2 cache, so each comes from memory."""
REPEATS = 20
"""Calls in one run of kernels that read what the kernel before them left in the cache."""


@dataclass(frozen=True)
class Case:
    """`what` done `by` specchat or another library.

    `body(rows)` launches it once for so many rows, `most` at most. `read` is the bytes of weights or cache that a call
    reads, 0 where they are few; there are `copies` of them. `alike(rows)` says whether each row is bit for bit
    what it is alone.
    """

    group: str
    what: str
    by: str
    read: int
    copies: int
    body: Callable[[int], Body]
    alike: Callable[[int], bool]
    most: int = MOST_ROWS


def copies_of(size: int, cycled: int) -> int:
    """How many copies of `size` bytes fill `cycled` bytes."""
    return max(1, -(-cycled // size))


def rows_alike(call: Callable[[int, int], Tensor]) -> Callable[[int], bool]:
    """Compares rows with themselves alone, which are computed once.

    `call(first, rows)` computes rows first .. first + rows - 1; its result has them as its first dimension.
    """
    alone: list[Tensor] = []

    def alike(rows: int) -> bool:
        while len(alone) < rows:
            alone.append(call(len(alone), 1)[0].clone())
        together = call(0, rows)
        return all(torch.equal(one, row) for one, row in zip(alone, together, strict=False))

    return alike


def held(*tensors: Tensor | None) -> int:
    """Bytes of the tensors there are."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)
