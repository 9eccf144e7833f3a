"""Tracking of code in a reply, between fences of three backquotes (CommonMark 0.31, 4.5)."""

from collections.abc import Collection, Mapping

FENCE = 3


def backquotes(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """Return the tokens with backquotes by id: fences consist of these alone."""
    return {token: text for text, token in vocabulary.items() if "`" in text}


class Fences:
    """Code tracker of one reply."""

    def __init__(self) -> None:
        self._texts: Mapping[int, str] = {}
        self.begin()

    def know(self, tokens: Mapping[int, str]) -> None:
        """Set the tokens with backquotes, from `backquotes`; before, no text counts as code."""
        self._texts = tokens

    def begin(self) -> None:
        """Begin a reply, in prose."""
        self.code = False
        """True while the reply is in code."""
        self._run = 0

    def add(self, tokens: Collection[int]) -> None:
        """Add `tokens` of the reply."""
        if self._texts.keys().isdisjoint(tokens):
            self._run = 0
            return
        for token in tokens:
            text = self._texts.get(token)
            if text is None:
                self._run = 0
                continue
            for character in text:
                self._run = self._run + 1 if character == "`" else 0
                if self._run == FENCE:
                    self.code = not self.code
