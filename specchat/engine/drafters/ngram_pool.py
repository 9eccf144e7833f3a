"""A bounded table of n-grams: which token mostly followed the same few tokens."""

from array import array
from collections.abc import Sequence

LENGTHS = (6, 4, 3, 2)
"""Tokens that are looked at, the longest first."""
LONGEST = LENGTHS[0]
MOST = 255
"""Votes that are counted."""

_WORD = (1 << 64) - 1
_TAG = _WORD >> 32 << 32


def key_of(before: tuple[int, ...]) -> int:
    """What the tokens `before` are found by; 64 bits."""
    return hash(before) & _WORD


class NgramPool:
    """One entry a slot: the tag of the tokens before, 32 bits, the token after them, 24, and its votes, 8.

    A token seen again has one vote more. Anything else that falls on the slot takes one away and has it at none: so
    what is frequent stays, and what is old gives way (Boyer and Moore's majority vote).
    """

    def __init__(self, slots: int) -> None:
        """`slots` entries of 8 bytes, for all lengths together."""
        self._slots = array("Q", bytes(8 * slots))

    def learn(self, text: Sequence[int], first: int = 0) -> None:
        """Take in what precedes each token of `text` from place `first` on; a microsecond or two a token."""
        slots = self._slots
        size = len(slots)
        for at in range(max(first, LENGTHS[-1]), len(text)):
            before, token = tuple(text[max(0, at - LONGEST) : at]), text[at] << 8
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
        """The token that follows what has this key, if it has so many votes."""
        known = self._slots[key % len(self._slots)]
        return known >> 8 & 0xFFFFFF if known & MOST >= votes and (known ^ key) & _TAG == 0 else None
