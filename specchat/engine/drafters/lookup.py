"""Prompt lookup (Saxena 2023): what followed the same words earlier follows again.

The longest suffix of the text that occurs before is sought over prompt and reply; among equals the latest wins.
"""

from collections import defaultdict
from collections.abc import Sequence

from specchat.engine.decoding.draft import Drafts

KEY = 2
"""Shortest match in tokens: one alone predicts little."""
LONGEST = 32
"""Matches longer than this count as equal."""
CANDIDATES = 64
"""Latest occurrences of the key that are compared."""


class LookupDrafter:
    """Copies from the text so far through an index of its token pairs that grows with it."""

    name = "lookup"
    ahead = True

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts
        self._text: list[int] = []
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)

    def begin(self, prompt: Sequence[int]) -> None:
        self.forget()

    def forget(self) -> None:
        self._text.clear()
        self._ends.clear()

    def propose(self, text: Sequence[int], limit: int) -> None:
        self._drafts.fill(self.continuation(text, limit))

    def continuation(self, text: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` tokens that followed the end of `text` before."""
        self._index(text)
        source = self._longest_match()
        tokens: list[int] = []
        for i in range(source, source + limit) if source is not None else ():
            # A match that reaches the end of the text goes on in the draft itself: repetition repeats.
            tokens.append(self._text[i] if i < len(self._text) else tokens[i - len(self._text)])
        return tokens

    def observe(self, text: Sequence[int], drafted: int) -> None:
        pass

    def _index(self, text: Sequence[int]) -> None:
        for token in text[len(self._text) :]:
            # The pair that ends the text is entered when the next token comes: it must not match itself.
            if len(self._text) >= KEY:
                self._ends[tuple(self._text[-KEY:])].append(len(self._text))
            self._text.append(token)

    def _longest_match(self) -> int | None:
        """Where the text goes on after the best earlier occurrence of its end."""
        text, end = self._text, len(self._text)
        best, best_length = None, 0
        for candidate in reversed(self._ends.get(tuple(text[-KEY:]), [])[-CANDIDATES:]):
            length = KEY
            while length < min(LONGEST, candidate) and text[candidate - 1 - length] == text[end - 1 - length]:
                length += 1
            if length > best_length:
                best, best_length = candidate, length
                if length == LONGEST:
                    break
        return best
