"""Prompt lookup (Saxena 2023): what followed the same words earlier follows again.

The longest suffix of the text that occurs before is sought over prompt and reply; among equals the latest wins.
"""

from collections.abc import Sequence

from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.guess import NOTHING, Guess
from specchat.engine.drafters.occurrences import KEY, Occurrences

LONGEST = 32
"""Matches longer than this count as equal."""
CANDIDATES = 64
"""Latest occurrences that are compared."""


class LookupDrafter:
    """Copies from the text so far."""

    name = "lookup"
    ahead = True

    def __init__(self, drafts: Drafts, here: Occurrences) -> None:
        """`here` is the index of this chat, which other families may share."""
        self._drafts = drafts
        self._here = here

    def begin(self, prompt: Sequence[int]) -> None:
        self._here.begin(prompt)

    def forget(self) -> None:
        self._here.clear()

    def propose(self, text: Sequence[int], limit: int) -> str:
        self.guess(text, limit).fill(self._drafts, limit)
        return self.name

    def guess(self, text: Sequence[int], limit: int) -> Guess:
        """Up to `limit` tokens that followed the end of `text` before."""
        self._here.grow(text)
        return self.after(text, (), limit) if self._here.has(text) else NOTHING

    def after(self, text: Sequence[int], drafted: Sequence[int], limit: int) -> Guess:
        """Up to `limit` tokens that followed the end of `text` and `drafted` before; `text` was asked about already."""
        end = drafted if len(drafted) >= KEY else [*text[-KEY:], *drafted]
        if not self._here.has(end):
            return NOTHING
        source, matched = self._longest_match([*text[-LONGEST:], *drafted])
        tokens = list(drafted)
        for i in range(source, source + limit):
            # A match that reaches the end of the text goes on in the draft itself: repetition repeats.
            tokens.append(text[i] if i < len(text) else tokens[i - len(text)])
            if tokens[-1] in self._drafts.ends:
                break
        return Guess(tokens[len(drafted) :], matched=matched)

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass

    def _longest_match(self, end: Sequence[int]) -> tuple[int, int]:
        """Where the text goes on after the best earlier occurrence of `end`, and how many tokens are alike."""
        best = best_length = 0
        for length, at in self._here.matches(end, LONGEST, CANDIDATES):
            if length > best_length:
                best, best_length = at, length
                if length == LONGEST:
                    break
        return best, best_length
