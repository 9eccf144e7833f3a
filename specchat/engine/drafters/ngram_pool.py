"""Bounded table of n-grams: the most frequent token after the same few tokens."""

from array import array
from collections.abc import Sequence

LENGTHS = (6, 4, 3, 2)
"""Lengths of n-grams, the longest first."""
LONGEST = LENGTHS[0]
MOST = 255
"""Most votes that are counted."""

_WORD = (1 << 64) - 1
_TAG = _WORD >> 32 << 32


def key_of(before: tuple[int, ...]) -> int:
    """64-bit key of the tokens `before`."""
    return hash(before) & _WORD


class NgramPool:
    """Hash table of packed cells: a tag of the tokens before (32 bits), the token after them (24), and its votes (8).

    A repeated token gains a vote. Any other n-gram in the same cell takes one away, and replaces the token at none. So
    frequent n-grams survive and old ones go (Boyer and Moore's majority vote).
    """

    def __init__(self, slots: int) -> None:
        """Allocate `slots` cells of 8 bytes, for all lengths together."""
        self._slots = array("Q", bytes(8 * slots))

    def learn(self, token_ids: Sequence[int], first: int = 0) -> None:
        """Add the n-grams that end at each token from position `first` on; a microsecond or two a token."""
        slots = self._slots
        size = len(slots)
        for at in range(max(first, LENGTHS[-1]), len(token_ids)):
            before, token = tuple(token_ids[max(0, at - LONGEST) : at]), token_ids[at] << 8
            for length in LENGTHS:
                if length > at:
                    continue
                key = hash(before[-length:]) & _WORD
                slot, wanted = key % size, key & _TAG | token
                known = slots[slot]
                votes = known & MOST
                if known - votes == wanted:
                    slots[slot] = known + (votes < MOST)
                elif votes > 1:
                    slots[slot] = known - 1
                else:
                    slots[slot] = wanted | 1

    def after(self, key: int, votes: int) -> int | None:
        """Return the token after the n-gram with this key, if it has enough votes."""
        known = self._slots[key % len(self._slots)]
        return known >> 8 & 0xFFFFFF if known & MOST >= votes and (known ^ key) & _TAG == 0 else None
