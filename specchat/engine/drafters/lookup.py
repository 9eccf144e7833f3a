"""Prompt lookup (Saxena 2023): what followed the same words earlier follows again.

The longest suffix of the text that occurs before is sought over prompt and reply; among equals the latest wins.
"""

from collections.abc import Sequence

from specchat.engine.decoding.draft import Drafts
from specchat.engine.drafters.occurrences import Occurrences

LONGEST = 32
"""Matches longer than this count as equal."""
CANDIDATES = 64
"""Latest occurrences that are compared."""


class LookupDrafter:
    """Copies from the text so far through an index that grows with it."""

    name = "lookup"
    ahead = True

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts
        self._here = Occurrences()

    def begin(self, prompt: Sequence[int]) -> None:
        self._here = Occurrences.of(prompt, self._here)

    def forget(self) -> None:
        self._here = Occurrences()

    def propose(self, text: Sequence[int], limit: int) -> None:
        self._drafts.fill(self.continuation(text, limit))

    def continuation(self, text: Sequence[int], limit: int) -> list[int]:
        """Up to `limit` tokens that followed the end of `text` before."""
        self._here.grow(text)
        source = self._longest_match()
        tokens: list[int] = []
        for i in range(source, source + limit) if source is not None else ():
            # A match that reaches the end of the text goes on in the draft itself: repetition repeats.
            tokens.append(text[i] if i < len(text) else tokens[i - len(text)])
        return tokens

    def observe(self, text: Sequence[int], drafted: int) -> None:
        pass

    def _longest_match(self) -> int | None:
        """Where the text goes on after the best earlier occurrence of its end."""
        best, best_length = None, 0
        for length, at in self._here.matches(self._here.text[-LONGEST:], LONGEST, CANDIDATES):
            if length > best_length:
                best, best_length = at, length
                if length == LONGEST:
                    break
        return best
