"""A copy of a cache, for a text beside the one that the cache holds."""

from collections.abc import Sequence

import numpy as np
import torch

from specchat.engine.model.cache import KVCache
from specchat.engine.model.copies import CacheEntries
from specchat.engine.model.tree_layout import shared_prefix

ALIGNMENT = 64


class CacheCopy:
    """Entries of one text in memory of its own, laid out like those of the cache. Memory is taken as it is written.

    Attributes:
        away: bytes from an entry of the cache to the copy's.
    """

    def __init__(self, cache: KVCache) -> None:
        """Make an empty copy of a cache with entries by position alone."""
        size = cache.space.nbytes
        held = np.zeros(size + ALIGNMENT, np.uint8)
        first = -held.ctypes.data % ALIGNMENT
        space = torch.from_numpy(held[first : first + size])
        self.away = space.data_ptr() - cache.space.data_ptr()
        self.entries = CacheEntries(cache.entries_of(*cache.layout.split(space)))


def move(source: CacheEntries, token_ids: Sequence[int], into: CacheEntries, held: list[int]) -> None:
    """Copy the entries of `token_ids` that `into`, which has those of `held`, lacks; `held` then equals them."""
    first = shared_prefix(held, token_ids)
    for to, copied in zip(into.of(first, len(token_ids)), source.of(first, len(token_ids)), strict=True):
        to.copy_(copied)
    held[:] = token_ids
