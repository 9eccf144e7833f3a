"""Causal attention over the cache, row-invariant.

Each row is a batch entry of its own, with the query heads that share a key-value head as its query rows, and attends
whole blocks of keys up to its own position: nothing in its arithmetic depends on the other rows of the call. What is
left to the library, the order of sums inside one entry, is proved not to vary before it is used.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from specchat.engine.model.cache import BLOCK
from specchat.engine.model.rows import TILE

GROUP_TILES = (1, 2, 4, 8)
"""Query rows of a group are padded to a multiple of one of these: odd numbers end in kernels whose sums depend on where
in memory their buffers lie, and so on the thread that runs them."""


class Attention:
    """Attention of one model's shape; holds the masks of its cache."""

    def __init__(self, kv_heads: int, group: int, head_dim: int, capacity: int) -> None:
        """`group` query heads share each key-value head; `capacity` is the cache's, a multiple of BLOCK."""
        self._masks = _causal_masks(capacity)
        self._tile = _group_tile(kv_heads, group, head_dim, torch.get_num_threads())

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """Attention of rows at positions start, start + 1, ...

        Args:
            query: float32 [rows, kv_heads, group, head_dim].
            keys, values: float32 [kv_heads, capacity, head_dim], already holding the rows' own entries.

        Returns:
            float32 [rows, kv_heads, group, head_dim].
        """
        if self._tile:
            return _attend(query, keys, values, self._masks, start, self._tile)
        rows = [_attend(row, keys, values, self._masks, start + i, 1) for i, row in enumerate(query.split(1))]
        return torch.cat(rows)


def _causal_masks(capacity: int) -> Tensor:
    """Additive masks float32 [BLOCK, capacity]: row i allows all but the last BLOCK - 1 - i columns.

    The last S columns are the mask of a position p with p % BLOCK == i that attends S keys, S being p + 1 rounded up.
    """
    masks = torch.zeros(BLOCK, capacity)
    masks[:, capacity - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
    return masks


def _attend(query: Tensor, keys: Tensor, values: Tensor, masks: Tensor, start: int, tile: int) -> Tensor:
    rows, _, group, _ = query.shape
    if group % tile:
        query = pad(query, (0, 0, 0, -group % tile))
    outputs = []
    done = 0
    while done < rows:
        first = (start + done) % BLOCK
        taken = min(rows - done, BLOCK - first)
        seen = start + done - first + BLOCK
        outputs.append(
            scaled_dot_product_attention(
                query[done : done + taken],
                keys[:, :seen].expand(taken, -1, -1, -1),
                values[:, :seen].expand(taken, -1, -1, -1),
                attn_mask=masks[first : first + taken, masks.shape[1] - seen :].view(taken, 1, 1, seen),
            )
        )
        done += taken
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[:, :, :group]


_proved: dict[tuple[int, int, int, int], int] = {}
"""(kv heads, group, head dim, torch threads) -> the group tile proved row-invariant here, 0 for none."""


def _group_tile(kv_heads: int, group: int, head_dim: int, threads: int) -> int:
    key = (kv_heads, group, head_dim, threads)
    if key not in _proved:
        _proved[key] = next((t for t in GROUP_TILES if _row_invariant(kv_heads, group, head_dim, t)), 0)
    return _proved[key]


def _row_invariant(kv_heads: int, group: int, head_dim: int, tile: int) -> bool:
    capacity = 4 * BLOCK
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(TILE, kv_heads, group, head_dim, generator=generator)
    keys, values = torch.randn(2, kv_heads, capacity, head_dim, generator=generator)
    masks = _causal_masks(capacity)
    for start in (0, BLOCK - 5, 2 * BLOCK + 7, capacity - TILE):
        alone = [_attend(query[i : i + 1], keys, values, masks, start + i, tile) for i in range(TILE)]
        for rows in range(2, TILE + 1):
            if not torch.equal(_attend(query[:rows], keys, values, masks, start, tile), torch.cat(alone[:rows])):
                return False
    return True
