"""Causal attention over the cache, row-invariant.

Two rows are a batch entry, with the query heads that share a key-value head as its query rows, and attend whole blocks
of keys: nothing in their arithmetic depends on the other rows of the call. A row alone is paired with itself. What is
left to the library, the order of sums inside one entry, is proved not to vary before it is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.model.cache import BLOCK, KVCache
from specchat.engine.model.rows import TILE

PAIR = 2
"""Rows of a batch entry: keys are read once for both, and an even number of query rows never ends in a matrix-vector
kernel, whose sums depend on where in memory its buffers lie."""


@dataclass(frozen=True)
class Span:
    """`rows` rows from row `first` of a pass on, all attending `seen` keys.

    `mask` is float32 [entries, 1, PAIR * group, seen], added to the scores; `keys` and `values` are, for each layer,
    float32 [entries, kv_heads, seen, head_dim].
    """

    first: int
    rows: int
    mask: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class Attention:
    """Attention of one model's shape; holds the masks of its cache."""

    def __init__(self, cache: KVCache, group: int) -> None:
        """`group` query heads share each key-value head of `cache`."""
        self._cache = cache
        self._group = group
        self._masks = _causal_masks(cache.capacity)
        kv_heads, _, head_dim = cache.keys[0].shape
        self._together = _proved_together(kv_heads, group, head_dim)

    def spans(self, start: int, rows: int) -> list[Span]:
        """How rows at positions start, start + 1, ... attend; the same for all layers of a pass."""
        return list(_spans(self._cache, self._masks, self._group, start, rows, rows if self._together else 1))

    def __call__(self, query: Tensor, layer: int, spans: list[Span]) -> Tensor:
        """Attention of the rows that `spans` was made for; the cache already holds their own entries.

        Args:
            query: float32 [rows, kv_heads, group, head_dim].

        Returns:
            float32 [rows, kv_heads, group, head_dim].
        """
        if len(spans) == 1:
            return _attend(query, layer, spans[0])
        return torch.cat([_attend(query.narrow(0, span.first, span.rows), layer, span) for span in spans])


def _causal_masks(capacity: int) -> Tensor:
    """Additive masks float32 [BLOCK, capacity]: row i allows all but the last BLOCK - 1 - i columns.

    The last S columns are the mask of a position p with p % BLOCK == i that attends S keys, S being p + 1 rounded up.
    """
    masks = torch.zeros(BLOCK, capacity)
    masks[:, capacity - BLOCK :] = torch.full((BLOCK, BLOCK), float("-inf")).triu(1)
    return masks


def _spans(cache: KVCache, masks: Tensor, group: int, start: int, rows: int, most: int) -> Iterator[Span]:
    """Rows at positions from `start` on in runs of at most `most` that share their last block."""
    done = 0
    while done < rows:
        first = (start + done) % BLOCK
        taken = min(rows - done, BLOCK - first, most)
        seen = start + done - first + BLOCK
        mask = masks[first : first + taken, masks.shape[1] - seen :]
        if taken % PAIR:
            mask = torch.cat((mask, mask[-1:]))
        mask = mask.repeat_interleave(group, 0).view(-1, 1, PAIR * group, seen)
        yield Span(done, taken, mask, *cache.window(seen, mask.shape[0]))
        done += taken


def _attend(query: Tensor, layer: int, span: Span) -> Tensor:
    rows, kv_heads, group, dim = query.shape
    entries = span.mask.shape[0]
    if rows == 1:
        paired = torch.cat((query, query), 2)
    else:
        even = torch.cat((query, query[-1:])) if rows % PAIR else query
        paired = even.view(entries, PAIR, kv_heads, group, dim).transpose(1, 2).reshape(entries, kv_heads, -1, dim)
    mixed = scaled_dot_product_attention(paired, span.keys[layer], span.values[layer], attn_mask=span.mask)
    if rows == 1:
        return mixed.narrow(2, 0, group)
    return mixed.view(entries, kv_heads, PAIR, group, dim).transpose(1, 2).reshape(-1, kv_heads, group, dim)[:rows]


_proved: dict[tuple[int, int, int, int], bool] = {}
"""(kv heads, group, head dim, torch threads) -> whether rows may go together here."""


def _proved_together(kv_heads: int, group: int, head_dim: int) -> bool:
    key = (kv_heads, group, head_dim, torch.get_num_threads())
    if key not in _proved:
        _proved[key] = _row_invariant(kv_heads, group, head_dim)
    return _proved[key]


def _row_invariant(kv_heads: int, group: int, head_dim: int) -> bool:
    capacity = 4 * BLOCK
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(TILE, kv_heads, group, head_dim, generator=generator)
    cache = KVCache(1, kv_heads, head_dim, capacity)
    for entries in (*cache.keys, *cache.values):
        entries.normal_(generator=generator)
    masks = _causal_masks(capacity)
    for start in (0, BLOCK - 5, 2 * BLOCK + 7, capacity - TILE):

        def attend(first: int, rows: int, start: int = start) -> Tensor:
            spans = _spans(cache, masks, group, start + first, rows, rows)
            return torch.cat([_attend(query[first + s.first :][: s.rows], 0, s) for s in spans])

        alone = torch.cat([attend(i, 1) for i in range(TILE)])
        if not all(torch.equal(attend(0, rows), alone[:rows]) for rows in range(2, TILE + 1)):
            return False
        if not torch.equal(attend(1, TILE - 1), alone[1:]):
            return False
    return True
