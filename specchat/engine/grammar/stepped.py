"""A constraint that finds how many tokens it allows by going behind each, for where a grammar cannot say it at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence


class SteppedConstraint(ABC):
    """Counts the tokens after the end, and knows whether that end is a token that is not allowed."""

    def __init__(self) -> None:
        self._after = 0
        """Tokens since the end of the reply, or since one that is not allowed; 0 before it."""
        self._wrong = False
        """True after a token that is not allowed."""

    @abstractmethod
    def push(self, token: int) -> None:
        """Go on after `token`."""

    @abstractmethod
    def pop(self) -> None:
        """Go back before the last token."""

    def prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are allowed, up to the end of the reply."""
        fitting = pushed = 0
        for token in tokens:
            self.push(token)
            pushed += 1
            if self._wrong:
                break
            fitting += 1
            if self._after:
                break
        for _ in range(pushed):
            self.pop()
        return fitting
