"""Row counts at which a product sums every row alike, found by trying, and the counts that others are padded to."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Padding = tuple[int, ...]
"""Entry r is how many rows go through a product in place of r; the last entry is for the most rows there may be."""


def measured(product: Callable[[Tensor], Tensor], x: Tensor) -> Padding:
    """The least padding with which rows of x [most rows, inputs] come out as they do among all of them, bit for bit."""
    whole = product(x)
    agrees = [torch.equal(product(x[:rows]), whole[:rows]) for rows in range(1, len(x) + 1)]
    return least([True, *agrees])


def least(agrees: Sequence[bool]) -> Padding:
    """Every count goes up to the next one that agrees; `agrees` is of 0, 1, ... rows, and the last one does."""
    found = len(agrees) - 1
    padding = []
    for rows in reversed(range(len(agrees))):
        found = rows if agrees[rows] else found
        padding.append(found)
    return tuple(reversed(padding))


def joined(paddings: Sequence[Padding]) -> Padding:
    """The least padding that suits several products of the same most rows."""
    counts = range(len(paddings[0]))
    return least([all(padding[rows] == rows for padding in paddings) for rows in counts])
