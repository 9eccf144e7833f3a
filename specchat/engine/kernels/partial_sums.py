"""Partial sums of a product, which the kernel that reads them adds."""

from functools import cache
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class PartialSums(NamedTuple):
    """Partial sums float32 [splits, R, columns], and elements from one split, and from one row, to the next."""

    first: Tensor
    split: int
    row: int
    splits: tl.constexpr


def partial_sums(tensor: Tensor) -> PartialSums:
    """Return partial sums float32 [splits, R, columns] for kernels."""
    return PartialSums(tensor, tensor.stride(0), tensor.stride(1), constant(tensor.shape[0]))


constant = cache(tl.constexpr)


@triton.jit  # type: ignore[untyped-decorator]
def summed(first: tl.tensor, inside: tl.tensor, sums: PartialSums) -> tl.tensor:
    """Return the partial sums at pointers, added in index order; zeros outside."""
    x = tl.load(first, mask=inside, other=0.0)
    for split in tl.static_range(1, sums.splits):
        x += tl.load(first + split * sums.split, mask=inside, other=0.0)
    return x
