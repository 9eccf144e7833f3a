"""Sets of tokens as words of 32: those that a grammar allows, with and without those that end a reply."""

import numpy as np

from specchat.engine.decoding.reply_rules import Allowed
from specchat.engine.grammar.matcher import GrammarMatcher

ALL = 0xFFFFFFFF
"""A word of 32 tokens."""


class Masks:
    """Masks for one reply. Tokens of `eos` end it, those of `never` are in no grammar."""

    def __init__(self, eos: frozenset[int], never: frozenset[int]) -> None:
        self._eos, self._never = eos, never
        self._sets: dict[tuple[frozenset[int], int, bool], Allowed] = {}

    def by(self, matcher: GrammarMatcher, words: int) -> Allowed:
        """The tokens that a grammar allows, an end where it may end."""
        mask = np.zeros(words, np.uint32)
        found = matcher.mask()[:words]
        np.bitwise_and(found, self.of(self._never, len(found), inverse=True), out=mask[: len(found)])
        if matcher.accepting:
            mask |= self.of(self._eos, words)
        return mask

    def of(self, tokens: frozenset[int], words: int, inverse: bool = False) -> Allowed:
        """A set of tokens, or all others; it is kept, and not to be changed."""
        key = (tokens, words, inverse)
        if key not in self._sets:
            made = np.zeros(words, np.uint32)
            for token in tokens:
                if token < 32 * words:
                    made[token // 32] |= np.uint32(1 << token % 32)
            self._sets[key] = ~made if inverse else made
        return self._sets[key]
