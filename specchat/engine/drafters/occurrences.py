"""A growing text with an index of its token pairs: where its end, or another one, occurred before."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

KEY = 2
"""Shortest match in tokens: one alone predicts little."""
BLOCK = 16


class Occurrences:
    """`text` is what was taken in so far."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append `tokens`; the pair that ends the text is entered when the next one comes: it must not match itself."""
        text, ends = self.text, self._ends
        first = max(len(text), KEY)
        text += tokens
        for place in range(first, len(text)):
            ends[tuple(text[place - KEY : place])].append(place)

    def begin(self, text: Sequence[int]) -> None:
        """Hold `text` and nothing else; what is here stays where `text` begins with it."""
        if list(text[: len(self.text)]) != self.text:
            self.clear()
        self.grow(text)

    def clear(self) -> None:
        """Hold nothing."""
        self.text.clear()
        self._ends.clear()

    def grow(self, text: Sequence[int]) -> None:
        """Append what `text` has beyond what is here."""
        if len(text) > len(self.text):
            self.extend(text[len(self.text) :])

    def has(self, end: Sequence[int]) -> bool:
        """Whether the last KEY tokens of `end` stand anywhere before the end."""
        return tuple(end[-KEY:]) in self._ends

    def matches(self, end: Sequence[int], longest: int, most: int) -> Iterator[tuple[int, int]]:
        """Where tokens like the last ones of `end` stand, the latest first.

        Yields:
            how many tokens are alike, from KEY to `longest`, and the place of the token after them; `most` places.
        """
        text, end = self.text, list(end)
        last = len(end)
        for at in reversed(self._ends.get(tuple(end[-KEY:]), [])[-most:]):
            length, limit = KEY, min(longest, at, last)
            # Many at once first: comparing lists costs little more than comparing one token.
            while length + BLOCK <= limit and (
                text[at - length - BLOCK : at - length] == end[last - length - BLOCK : last - length]
            ):
                length += BLOCK
            while length < limit and text[at - 1 - length] == end[last - 1 - length]:
                length += 1
            yield length, at
