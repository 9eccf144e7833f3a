"""Paths of a tree's nodes: bit j of a node's int64 is set where node j is on the path, itself included."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class RowPlaces(NamedTuple):
    """Rows of a pass.

    Attributes:
        length: int32 [1], KV entries before the first row.
        tree: None for a chain: row r attends to KV entries up to length + r. Otherwise int64 [R]: row r attends to all
            KV entries before length, and to length + j for each set bit j of tree[r]: its own and its ancestors'.
        skip: int32 [1]; non-zero skips the kernels.
        last: int32 [1], the last row that counts, of many rows; None: all do.
        until: int32 [1], position before which each row of a chain of more than VERIFY_ROWS sees all, its window
            beginning as ever, as of a picture. 0, or None: each up to its own.
    """

    length: Tensor
    tree: Tensor | None = None
    skip: Tensor | None = None
    last: Tensor | None = None
    until: Tensor | None = None


@triton.jit  # type: ignore[untyped-decorator]
def unpacked(tree: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Number of set bits of an int64, and their positions: int32 [64], the d-th set bit's at index d."""
    bit = tl.arange(0, 64)
    member = ((tree >> bit.to(tl.int64)) & 1).to(tl.int32)
    rank = tl.cumsum(member, 0) - 1
    found = (member[None, :] != 0) & (rank[None, :] == bit[:, None])
    return tl.sum(member, 0), tl.sum(tl.where(found, bit[None, :], 0), 1)


@triton.jit  # type: ignore[untyped-decorator]
def depths(places: tl.tensor, there: tl.tensor) -> tl.tensor:
    """Number of set bits of the int64 at pointers [N], 0 where none is `there`: int32 [N]."""
    bit = tl.arange(0, 64).to(tl.int64)
    tree = tl.load(places, mask=there, other=0)
    return tl.sum(((tree[:, None] >> bit[None, :]) & 1).to(tl.int32), 1)
