"""Causal attention over the cache, row-invariant: its masks, and the check that rows may share a call.

Two rows are a batch entry, with the query heads that share a key-value head as its query rows, and attend whole blocks
of keys: nothing in their arithmetic depends on the other rows of the call. Keys are read once for both, and an even
number of query rows never ends in a matrix-vector kernel, whose sums depend on where in memory its buffers lie. A row
alone is paired with itself. What is left to the library, the order of sums inside one entry, is checked not to vary
before it is used.
"""

import torch
from torch import Tensor

from specchat.engine.model.cache import BLOCK
from specchat.engine.model.layers import attended, span_mask, spans
from specchat.engine.model.rows import TILE


def causal_masks(capacity: int) -> Tensor:
    """Additive masks float32 [BLOCK, capacity]: row i allows all but the last BLOCK - 1 - i columns.

    The last S columns are the mask of a position p with p % BLOCK == i that attends S keys, S being p + 1 rounded up.
    """
    masks = torch.zeros(BLOCK, capacity)
    masks[:, capacity - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
    return masks


_checked: dict[tuple[int, int, int, int], bool] = {}
"""(kv heads, group, head dim, torch threads) -> whether rows may go together here."""


def may_share(kv_heads: int, group: int, head_dim: int) -> bool:
    """Whether rows of this shape may share a call on the machine at hand, bit for bit."""
    key = (kv_heads, group, head_dim, torch.get_num_threads())
    if key not in _checked:
        _checked[key] = _row_invariant(kv_heads, group, head_dim)
    return _checked[key]


def _row_invariant(kv_heads: int, group: int, head_dim: int) -> bool:
    capacity = 4 * BLOCK
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(TILE, kv_heads, group, head_dim, generator=generator)
    keys, values = torch.randn(2, kv_heads, capacity, head_dim, generator=generator)
    masks = causal_masks(capacity)
    for start in (0, BLOCK - 5, 2 * BLOCK + 7, capacity - TILE):

        def attend(first: int, rows: int, start: int = start) -> Tensor:
            parts = []
            for count in spans(start + first, rows, rows, BLOCK):
                mask = span_mask(masks, group, start + first, count)
                parts.append(attended(query[first : first + count], keys, values, mask))
                first += count
            return torch.cat(parts)

        alone = torch.cat([attend(i, 1) for i in range(TILE)])
        if not all(torch.equal(attend(0, rows), alone[:rows]) for rows in range(2, TILE + 1)):
            return False
        if not torch.equal(attend(1, TILE - 1), alone[1:]):
            return False
    return True
