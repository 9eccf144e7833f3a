"""The text of a target's tokens in a draft's own tokens, which grows and shrinks with it.

A word is split as the draft would split it; as its tokens come one by one the split of the last word may change, and
that of the others stays. What a chat template puts around messages counts as a word, for which the draft has its own.
"""

from collections.abc import Sequence
from itertools import groupby

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
        self._beginnings = {frame[:end] for frame in dictionary.frames for end in range(1, len(frame) + 1)}

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
            if word and not self._joins(word, token):
                self._add(word)
                word = []
            word.append(token)
        if word:
            self._add(word)
        return kept

    def _joins(self, word: list[int], token: int) -> bool:
        """Whether a token goes on with a word, which ends before a single space, or with what may become a frame."""
        known = self._dictionary
        if (*word, token) in self._beginnings:
            return True
        if known.alike or len(word) == LONGEST or not known.texts.keys() >= {word[0], token}:
            return False
        text = known.texts[token]
        return text[:1] != b" " or text[1:2].isspace() or known.texts[word[-1]][-1:].isspace()

    def _add(self, word: list[int]) -> None:
        self._words.append((len(self._text), len(self.own)))
        self._text += word
        self.own += self._split(word)

    def _split(self, word: list[int]) -> Sequence[int]:
        known = self._dictionary
        if (frame := known.frames.get(tuple(word))) is not None:
            return frame
        own: list[int] = []
        for plain, run in groupby(word, known.texts.__contains__):
            if not plain:
                own += (token for mark in run for token in known.marks.get(mark, ()))
            elif known.alike:
                own += (known.alike[token] for token in run)
            else:
                own += self._remembered(b"".join(known.texts[token] for token in run))
        return own

    def _remembered(self, text: bytes) -> Sequence[int]:
        if text not in self._known:
            if len(self._known) == REMEMBERED:
                self._known.clear()
            self._known[text] = self._dictionary.splitter.split(text)
        return self._known[text]
