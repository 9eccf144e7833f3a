"""A copy of a cache, for a text beside the one that the cache holds."""

from collections.abc import Sequence

from specchat.engine.model.cache import KVCache
from specchat.engine.model.copies import CacheEntries, Tail
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.model.zeros import zeros


class CacheCopy:
    """Entries of one text in memory of its own, laid out like those of the cache.

    Attributes:
        of_token: bytes of main memory that a token takes as it is written.
        away: bytes from an entry of a cache in main memory to the copy's.
    """

    def __init__(self, entries: CacheEntries, of_token: int = 0, away: int = 0) -> None:
        self.entries, self.of_token, self.away = entries, of_token, away

    def tail(self, held: int) -> Tail | None:
        """The tail of its text of `held` tokens; None with entries by position alone."""
        del held
        return None

    def resume(self, tail: Tail | None) -> None:
        """Take over the tail of a text."""
        assert tail is None

    @classmethod
    def of(cls, cache: KVCache) -> "CacheCopy":
        """Make an empty copy of a cache in main memory with entries by position alone."""
        space = zeros(cache.space.nbytes)
        entries = CacheEntries(cache.entries_of(*cache.layout.split(space)))
        of_token = sum(part.nbytes // part.shape[1] for part in entries.tensors)
        return cls(entries, of_token, space.data_ptr() - cache.space.data_ptr())


def move(source: CacheEntries, token_ids: Sequence[int], into: CacheEntries, held: list[int]) -> None:
    """Copy the entries of `token_ids` that `into`, which has those of `held`, lacks; `held` then equals them."""
    first = shared_prefix(held, token_ids)
    for to, copied in zip(into.of(first, len(token_ids)), source.of(first, len(token_ids)), strict=True):
        to.copy_(copied)
    held[:] = token_ids
