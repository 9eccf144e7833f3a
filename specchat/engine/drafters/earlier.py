"""Cross-chat n-gram cache: replies before this one, by chat, to copy from in other chats."""

from array import array
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from specchat.dataclass import dataclass
from specchat.engine.drafters.occurrences import NgramPool, Occurrences

REMEMBERED = 200_000
"""Most tokens held; beyond it the oldest half goes."""
SLOTS = 1 << 19
"""Cells of the n-gram table: 4 MiB."""
PIECE = 1_000
"""Tokens that `digest` indexes at a time, in some milliseconds."""
END = -1
"""Separator of two replies: nothing is copied across it."""


@dataclass(frozen=True)
class _Reply:
    chat: str
    tokens: "array[int]"
    old: bool = False
    """True if the reply is older than the loaded pair."""


class Earlier:
    """Two indexes of the same replies: `places`, with END after each, and `ngrams`.

    While `hidden`, both are empty and nothing is added, so that the current reply cannot use other replies.
    """

    def __init__(self) -> None:
        self.hidden = False
        self._nothing = Occurrences(), NgramPool(1)
        self._replies: deque[_Reply] = deque()
        """Replies, the oldest first."""
        self._enter_anew()

    @property
    def places(self) -> Occurrences:
        return self._nothing[0] if self.hidden else self._places

    @property
    def ngrams(self) -> NgramPool:
        return self._nothing[1] if self.hidden else self._ngrams

    @property
    def full(self) -> bool:
        """True if there is no room for more old replies."""
        return self._tokens >= REMEMBERED

    def add(self, chat: str, tokens: Sequence[int]) -> None:
        """Add a reply of `chat` as the newest one."""
        if tokens and not self.hidden:
            self._replies.append(reply := _Reply(chat, array("i", tokens)))
            self._enter(reply.tokens)
            self._tokens += len(tokens)
            if self._tokens > REMEMBERED:
                self._drop_oldest()

    def add_old(self, chat: str, tokens: Sequence[int]) -> None:
        """Add a reply of `chat`, or a part of one, as the oldest one, unless the cache is full."""
        if not self.full:
            self._replies.appendleft(reply := _Reply(chat, array("i", tokens), old=True))
            self._enter(reply.tokens)
            self._tokens += len(tokens)

    def repeated(self, tokens: Sequence[int]) -> int:
        """Count the tokens in the longest common prefix of `tokens` and any reply."""
        new, most = array("i", tokens), 0
        for reply in self._replies if not self.hidden else ():
            if reply.tokens[: most + 1] == new[: most + 1]:
                alike = (one == other for one, other in zip(reply.tokens, new, strict=False))
                most = max(most, sum(takewhile(bool, alike)))
        return most

    def knows(self, chat: str) -> bool:
        """True if the cache holds tokens of this chat."""
        return any(reply.chat == chat for reply in self._replies)

    def forget(self, chat: str) -> None:
        """Remove this chat. Replies of others are found again after `digest`."""
        self._keep_only([reply for reply in self._replies if reply.chat != chat])

    def forget_old(self) -> None:
        """Remove everything from `add_old`; the rest is found again after `digest`."""
        self._keep_only([reply for reply in self._replies if not reply.old])

    @property
    def waiting(self) -> bool:
        """True if some replies are not indexed yet."""
        return bool(self._waiting)

    def digest(self) -> None:
        """Index the next piece of the waiting replies."""
        if self._waiting:
            self._enter(self._waiting.popleft())

    def _keep_only(self, replies: Sequence[_Reply]) -> None:
        if len(replies) < len(self._replies):
            self._replies = deque(replies)
            self._enter_anew()

    def _enter(self, tokens: "array[int]") -> None:
        self._places.extend([*tokens, END])
        self._ngrams.learn(tokens)

    def _enter_anew(self) -> None:
        self._places, self._ngrams = Occurrences(), NgramPool(SLOTS)
        self._tokens = sum(len(reply.tokens) for reply in self._replies)
        self._waiting = deque(
            reply.tokens[at : at + PIECE] for reply in self._replies for at in range(0, len(reply.tokens), PIECE)
        )

    def _drop_oldest(self) -> None:
        while len(self._replies) > 1 and self._tokens > REMEMBERED // 2:
            self._tokens -= len(self._replies.popleft().tokens)
        self._enter_anew()
