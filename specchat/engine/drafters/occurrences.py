"""A growing text with an index of its token pairs, to find earlier occurrences of an end of text."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

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
        for place in range(first, len(token_ids)):
            ends[tuple(token_ids[place - KEY : place])].append(place)

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
