"""The text of a target's tokens in a draft's own tokens, which grows and shrinks with it.

A word is split as the draft would split it; as its tokens come one by one the split of the last word may change, and
that of the others stays.
"""

from collections.abc import Sequence

from specchat.engine.translation.dictionary import Dictionary

LONGEST = 32
"""Tokens after which a text without spaces is split anyway."""
REMEMBERED = 1 << 16
"""Words whose tokens are remembered."""


class Retelling:
    """`own` are the draft's tokens for what was put."""

    def __init__(self, dictionary: Dictionary) -> None:
        self.own: list[int] = []
        self._dictionary = dictionary
        self._text: list[int] = []
        self._words: list[tuple[int, int]] = []
        """Where each word begins: among the target's tokens and among its own."""
        self._known: dict[bytes, list[int]] = {}

    @property
    def settled(self) -> int:
        """Tokens of `own` that no longer change as the text grows."""
        return self._words[-1][1] if self._words else 0

    def put(self, tokens: Sequence[int], start: int) -> int:
        """Let the target's `tokens` come after the first `start`; how many of `own` are the same as before."""
        while self._words and self._words[-1][0] >= start:
            self._words.pop()
        first, kept = self._words.pop() if self._words else (0, 0)
        waiting = [*self._text[first:start], *tokens]
        del self._text[first:], self.own[kept:]
        word: list[int] = []
        for token in waiting:
            if word and (len(word) == LONGEST or self._begins(token, word[-1])):
                self._add(word)
                word = []
            word.append(token)
        if word:
            self._add(word)
        return kept

    def _begins(self, token: int, before: int) -> bool:
        """Whether a word begins: where nothing else comes before a space."""
        known = self._dictionary
        if known.alike or token not in known.texts or before not in known.texts:
            return True
        text = known.texts[token]
        return text[:1] == b" " and not text[1:2].isspace() and not known.texts[before][-1:].isspace()

    def _add(self, word: list[int]) -> None:
        self._words.append((len(self._text), len(self.own)))
        self._text += word
        self.own += self._split(word)

    def _split(self, word: list[int]) -> Sequence[int]:
        known = self._dictionary
        if word[0] in known.alike:
            return [known.alike[word[0]]]
        if word[0] not in known.texts:
            return known.marks.get(word[0], ())
        text = b"".join(known.texts[token] for token in word)
        if text not in self._known:
            if len(self._known) == REMEMBERED:
                self._known.clear()
            self._known[text] = known.splitter.split(text)
        return self._known[text]
