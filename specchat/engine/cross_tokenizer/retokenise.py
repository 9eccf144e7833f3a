"""Retokenises the target's tokens for a draft model, as they grow and shrink.

Each word is encoded as the draft would encode it. While its tokens arrive the encoding of the last word may change;
earlier words stay. A frame of the chat template counts as a word, for which the draft has its own tokens.
"""

from collections.abc import Sequence
from itertools import groupby

from specchat.engine.cross_tokenizer.vocabulary_map import VocabularyMap

MAX_WORD_TOKENS = 32
"""Tokens after which a text without spaces is cut anyway."""
MAX_CACHED_WORDS = 1 << 16


class Retokenizer:
    """`draft_tokens` holds the draft tokens for all target tokens put so far."""

    def __init__(self, vocabulary_map: VocabularyMap) -> None:
        self.draft_tokens: list[int] = []
        self._map = vocabulary_map
        self._target: list[int] = []
        self._words: list[tuple[int, int]] = []
        """Start of each word in the target's tokens and in `draft_tokens`."""
        self._cache: dict[bytes, list[int]] = {}
        self._beginnings = {frame[:end] for frame in vocabulary_map.templates for end in range(1, len(frame) + 1)}

    @property
    def settled(self) -> int:
        """Number of tokens of `draft_tokens` that further tokens cannot change."""
        return self._words[-1][1] if self._words else 0

    def put(self, tokens: Sequence[int], start: int) -> int:
        """Replace the target's tokens from position `start` on; return how many `draft_tokens` are unchanged."""
        while self._words and self._words[-1][0] >= start:
            self._words.pop()
        first, unchanged = self._words.pop() if self._words else (0, 0)
        pending = [*self._target[first:start], *tokens]
        del self._target[first:], self.draft_tokens[unchanged:]
        word: list[int] = []
        for token in pending:
            if word and not self._continues(word, token):
                self._add(word)
                word = []
            word.append(token)
        if word:
            self._add(word)
        return unchanged

    def _continues(self, word: list[int], token: int) -> bool:
        """True while `token` belongs to a word, which ends before a single space, or to a possible frame."""
        known = self._map
        if (*word, token) in self._beginnings:
            return True
        if known.renumbered or len(word) == MAX_WORD_TOKENS or not known.texts.keys() >= {word[0], token}:
            return False
        text = known.texts[token]
        return text[:1] != b" " or text[1:2].isspace() or known.texts[word[-1]][-1:].isspace()

    def _add(self, word: list[int]) -> None:
        self._words.append((len(self._target), len(self.draft_tokens)))
        self._target += word
        self.draft_tokens += self._encoded(word)

    def _encoded(self, word: list[int]) -> Sequence[int]:
        known = self._map
        if (frame := known.templates.get(tuple(word))) is not None:
            return frame
        draft_tokens: list[int] = []
        for ordinary, run in groupby(word, known.texts.__contains__):
            if not ordinary:
                draft_tokens += (token for special in run for token in known.special.get(special, ()))
            elif known.renumbered:
                draft_tokens += (known.renumbered[token] for token in run)
            else:
                draft_tokens += self._cached(b"".join(known.texts[token] for token in run))
        return draft_tokens

    def _cached(self, text: bytes) -> Sequence[int]:
        if text not in self._cache:
            if len(self._cache) == MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[text] = self._map.encoder.encode(text)
        return self._cache[text]
