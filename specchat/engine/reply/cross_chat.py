"""Fills the cross-chat n-gram cache with replies of saved chats, piece by piece while the worker is idle."""

from collections import deque
from collections.abc import Callable, Sequence

from specchat.engine.drafters.earlier import Earlier
from specchat.engine.protocol.requests import Forget, Remember

PIECE_CHARS = 2_000
"""Characters indexed at a time: a few milliseconds, for which a request may have to wait."""


class CrossChatIndexer:
    """A queue of texts for the cross-chat n-gram cache."""

    def __init__(self, cache: Earlier, encode: Callable[[str], Sequence[int]]) -> None:
        """Index into `cache`; `encode` returns the tokens of a text."""
        self._cache = cache
        self._encode = encode
        self._waiting: deque[tuple[str, str]] = deque()

    def remember(self, request: Remember) -> None:
        """Queue the replies of a chat, unless the chat is cached or queued."""
        known = self._cache.knows(request.chat) or any(chat == request.chat for chat, _ in self._waiting)
        if not known:
            pieces = (text[at : at + PIECE_CHARS] for text in request.texts for at in range(0, len(text), PIECE_CHARS))
            self._waiting += ((request.chat, piece) for piece in pieces)

    def forget(self, request: Forget) -> None:
        """Drop a chat from the queue and the cache, or all that `remember` added."""
        waiting, self._waiting = self._waiting, deque()
        if request.chat is None:
            self._cache.forget_old()
        else:
            self._waiting += (piece for piece in waiting if piece[0] != request.chat)
            self._cache.forget(request.chat)

    def digest(self) -> bool:
        """Index one piece; False once the queue is empty."""
        if self._cache.full:
            self._waiting.clear()
        if self._cache.waiting:
            self._cache.digest()
        elif self._waiting:
            chat, text = self._waiting.popleft()
            self._cache.add_old(chat, self._encode(text))
        return self._cache.waiting or bool(self._waiting)
