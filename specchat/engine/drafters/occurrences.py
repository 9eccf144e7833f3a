"""Indexes of text: occurrences of an end of text, and votes for the token after a few tokens."""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

from specchat.engine.protocol.picture_ids import FIRST

KEY = 2
"""Shortest match in tokens: one alone predicts little."""
BLOCK = 16


class Occurrences:
    """Index of token pairs in `token_ids`, the tokens added so far."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`. The last pair is indexed with the next token, so that it cannot match itself."""
        token_ids, ends = self.token_ids, self._ends
        first = max(len(token_ids), KEY)
        token_ids += tokens
        for end in range(first, len(token_ids)):
            ends[tuple(token_ids[end - KEY : end])].append(end)

    def begin(self, token_ids: Sequence[int]) -> None:
        """Set the text to `token_ids`; the index survives if `token_ids` begins with the indexed text."""
        if list(token_ids[: len(self.token_ids)]) != self.token_ids:
            self.clear()
        self.grow(token_ids)

    def clear(self) -> None:
        """Remove all tokens."""
        self.token_ids.clear()
        self._ends.clear()

    def grow(self, token_ids: Sequence[int]) -> None:
        """Append the tokens of `token_ids` beyond those indexed."""
        if len(token_ids) > len(self.token_ids):
            self.extend(token_ids[len(self.token_ids) :])

    def has(self, end: Sequence[int]) -> bool:
        """True if the last KEY tokens of `end` occur before the end."""
        return tuple(end[-KEY:]) in self._ends

    def matches(self, end: Sequence[int], longest: int, most: int) -> Iterator[tuple[int, int]]:
        """Find occurrences of the last tokens of `end`, the latest first.

        Yields:
            length of the match, from KEY to `longest`, and position of the token after it; `most` positions.
        """
        token_ids, end = self.token_ids, list(end)
        last = len(end)
        for at in reversed(self._ends.get(tuple(end[-KEY:]), [])[-most:]):
            length, limit = KEY, min(longest, at, last)
            # Blocks first: comparing lists costs little more than comparing one token.
            while length + BLOCK <= limit and (
                token_ids[at - length - BLOCK : at - length] == end[last - length - BLOCK : last - length]
            ):
                length += BLOCK
            while length < limit and token_ids[at - 1 - length] == end[last - 1 - length]:
                length += 1
            yield length, at


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
            if token_ids[at] >= FIRST:
                continue
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
