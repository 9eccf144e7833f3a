"""Causal attention over the cache, row-invariant.

Each row is a batch entry of its own, with the query heads that share a key-value head as its query rows, and attends
whole blocks of keys up to its own position: nothing in its arithmetic depends on the other rows of the call. What is
left to the library, the order of sums inside one entry, is proved not to vary before it is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from specchat.engine.model.cache import BLOCK
from specchat.engine.model.rows import TILE

GROUP_TILES = (1, 2, 4, 8)
"""Query rows of a group are padded to a multiple of one of these: odd numbers end in kernels whose sums depend on where
in memory their buffers lie, and so on the thread that runs them."""


@dataclass(frozen=True)
class Span:
    """`rows` rows from row `first` of a pass on, all attending `seen` keys through their masks [rows, 1, 1, seen]."""

    first: int
    rows: int
    seen: int
    mask: Tensor


class Attention:
    """Attention of one model's shape; holds the masks of its cache."""

    def __init__(self, kv_heads: int, group: int, head_dim: int, capacity: int) -> None:
        """`group` query heads share each key-value head; `capacity` is the cache's, a multiple of BLOCK."""
        self._masks = _causal_masks(capacity)
        self._tile = _group_tile(kv_heads, group, head_dim, torch.get_num_threads())

    def spans(self, start: int, rows: int) -> list[Span]:
        """How rows at positions start, start + 1, ... attend; the same for all layers of a pass."""
        return list(_spans(self._masks, start, rows, rows if self._tile else 1))

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, spans: list[Span]) -> Tensor:
        """Attention of the rows that `spans` was made for.

        Args:
            query: float32 [rows, kv_heads, group, head_dim].
            keys, values: float32 [kv_heads, capacity, head_dim], already holding the rows' own entries.

        Returns:
            float32 [rows, kv_heads, group, head_dim].
        """
        return _attend(query, keys, values, spans, self._tile or 1)


def _causal_masks(capacity: int) -> Tensor:
    """Additive masks float32 [BLOCK, capacity]: row i allows all but the last BLOCK - 1 - i columns.

    The last S columns are the mask of a position p with p % BLOCK == i that attends S keys, S being p + 1 rounded up.
    """
    masks = torch.zeros(BLOCK, capacity)
    masks[:, capacity - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
    return masks


def _spans(masks: Tensor, start: int, rows: int, most: int) -> Iterator[Span]:
    """Rows at positions from `start` on in runs of at most `most` that share their last block."""
    done = 0
    while done < rows:
        first = (start + done) % BLOCK
        taken = min(rows - done, BLOCK - first, most)
        seen = start + done - first + BLOCK
        mask = masks[first : first + taken, masks.shape[1] - seen :].view(taken, 1, 1, seen)
        yield Span(done, taken, seen, mask)
        done += taken


def _attend(query: Tensor, keys: Tensor, values: Tensor, spans: list[Span], tile: int) -> Tensor:
    group = query.shape[2]
    if group % tile:
        query = pad(query, (0, 0, 0, -group % tile))
    outputs = [
        scaled_dot_product_attention(
            query.narrow(0, span.first, span.rows),
            keys.narrow(1, 0, span.seen).expand(span.rows, -1, -1, -1),
            values.narrow(1, 0, span.seen).expand(span.rows, -1, -1, -1),
            attn_mask=span.mask,
        )
        for span in spans
    ]
    mixed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return mixed[:, :, :group] if group % tile else mixed


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

        def attend(first: int, rows: int, start: int = start) -> Tensor:
            spans = list(_spans(masks, start + first, rows, rows))
            return _attend(query[first : first + rows], keys, values, spans, tile)

        alone = torch.cat([attend(i, 1) for i in range(TILE)])
        if not all(torch.equal(attend(0, rows), alone[:rows]) for rows in range(2, TILE + 1)):
            return False
    return True
