"""A growing text with an index of its token pairs, to find earlier occurrences of an end of text."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

KEY = 2
"""Shortest match in tokens: one alone predicts little."""
BLOCK = 16


class Occurrences:
    """Index of token pairs in `text`, the tokens added so far."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`. The last pair is indexed with the next token, so that it cannot match itself."""
        text, ends = self.text, self._ends
        first = max(len(text), KEY)
        text += tokens
        for place in range(first, len(text)):
            ends[tuple(text[place - KEY : place])].append(place)

    def begin(self, text: Sequence[int]) -> None:
        """Set the text to `text`; the index survives if `text` begins with the indexed text."""
        if list(text[: len(self.text)]) != self.text:
            self.clear()
        self.grow(text)

    def clear(self) -> None:
        """Remove all tokens."""
        self.text.clear()
        self._ends.clear()

    def grow(self, text: Sequence[int]) -> None:
        """Append the tokens of `text` beyond those indexed."""
        if len(text) > len(self.text):
            self.extend(text[len(self.text) :])

    def has(self, end: Sequence[int]) -> bool:
        """True if the last KEY tokens of `end` occur before the end."""
        return tuple(end[-KEY:]) in self._ends

    def matches(self, end: Sequence[int], longest: int, most: int) -> Iterator[tuple[int, int]]:
        """Find occurrences of the last tokens of `end`, the latest first.

        Yields:
            length of the match, from KEY to `longest`, and position of the token after it; `most` positions.
        """
        text, end = self.text, list(end)
        last = len(end)
        for at in reversed(self._ends.get(tuple(end[-KEY:]), [])[-most:]):
            length, limit = KEY, min(longest, at, last)
            # Blocks first: comparing lists costs little more than comparing one token.
            while length + BLOCK <= limit and (
                text[at - length - BLOCK : at - length] == end[last - length - BLOCK : last - length]
            ):
                length += BLOCK
            while length < limit and text[at - 1 - length] == end[last - 1 - length]:
                length += 1
            yield length, at
