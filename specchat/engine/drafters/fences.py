"""Whether a reply is at prose or at code: between fences of three backquotes it writes code (CommonMark 0.31, 4.5)."""

from collections.abc import Collection, Mapping

FENCE = 3


def backquotes(vocabulary: Mapping[str, int]) -> dict[int, str]:
    """The tokens with backquotes in them, by their ids: the only ones that fences are made of."""
    return {token: text for text, token in vocabulary.items() if "`" in text}


class Fences:
    """Follows one reply."""

    def __init__(self) -> None:
        self._texts: Mapping[int, str] = {}
        self.begin()

    def know(self, tokens: Mapping[int, str]) -> None:
        """The tokens are these, as `backquotes` finds them; before, no text is code."""
        self._texts = tokens

    def begin(self) -> None:
        """A reply begins, with prose."""
        self.code = False
        """Whether the reply is at code."""
        self._run = 0

    def add(self, tokens: Collection[int]) -> None:
        """The reply went on with `tokens`."""
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
