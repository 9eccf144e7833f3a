"""Steps of a constraint over a reply: forward by tokens until its end, and back."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from specchat.engine.decoding.reply_rules import Allowed


class SteppedConstraint(ABC):
    """Counts the tokens after the end, and knows whether that end is a token that is not allowed."""

    def __init__(self) -> None:
        self._after = 0
        """Tokens since the end of the reply, or since one that is not allowed; 0 before it."""
        self._wrong = False
        """True after a token that is not allowed."""
        self._mask: Allowed | None = None
        """The allowed tokens, while they are known."""
        self._path: list[int] | None = None
        """Tokens since the last look ahead, if there was one."""
        self._ahead: dict[tuple[int, ...], Allowed] = {}
        """The allowed tokens after such paths."""

    @property
    def rejected(self) -> int:
        """Number of the last tokens, from the first one on that is not allowed."""
        return self._after if self._wrong else 0

    @abstractmethod
    def _goes_on(self, token: int) -> bool:
        """Move behind `token`; False if it is not allowed, or ends the reply."""

    @abstractmethod
    def _ends(self, token: int) -> bool:
        """True if `token`, behind which the reply does not go on, may end it here."""

    @abstractmethod
    def _go_back(self) -> None:
        """Move before the last token."""

    @property
    def _free(self) -> bool:
        """True where all tokens are allowed."""
        return False

    @abstractmethod
    def _found(self, words: int) -> Allowed:
        """The allowed tokens, in so many words."""

    def push(self, token: int) -> None:
        self._mask = None
        if self._path is not None:
            self._path.append(token)
        if self._after:
            self._after += 1
        elif not self._goes_on(token):
            self._after, self._wrong = 1, not self._ends(token)

    def pop(self) -> None:
        self._mask = None
        if self._path is not None:
            # What goes back before the look ahead leaves it.
            self._path = self._path[:-1] if self._path else None
        if self._after:
            self._after -= 1
            self._wrong = self._wrong and self._after > 0
        else:
            self._go_back()

    def allowed(self, columns: int) -> Allowed | None:
        if self._after or self._free:
            return None
        words = -(-columns // 32)
        if self._mask is None and self._path is not None:
            self._mask = self._ahead.get(tuple(self._path))
        if self._mask is None or len(self._mask) != words:
            self._mask = self._found(words)
        return self._mask

    def look_ahead(self, tokens: Sequence[int], columns: int, done: Callable[[], bool]) -> None:
        self._path, self._ahead, pushed = [], {}, 0
        while not done() and (mask := self.allowed(columns)) is not None:
            self._ahead[tuple(tokens[:pushed])] = mask
            if pushed == len(tokens):
                break
            self.push(tokens[pushed])
            pushed += 1
        for _ in range(pushed):
            self.pop()

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
