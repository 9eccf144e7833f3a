"""Replies of saved chats, which drafts may copy from: taken in piece by piece while nothing else is to be done."""

from collections import deque
from collections.abc import Callable, Sequence

from specchat.engine.api import Forget, Remember
from specchat.engine.drafters.earlier import Earlier

PIECE = 2_000
"""Characters that are taken in at a time: a few milliseconds, which a request may have to wait for."""


class Remembering:
    """What waits to be taken in is forgotten as what was."""

    def __init__(self, earlier: Earlier, encode: Callable[[str], Sequence[int]]) -> None:
        """`encode` gives the tokens of a text."""
        self._earlier = earlier
        self._encode = encode
        self._waiting: deque[tuple[str, str]] = deque()

    def remember(self, request: Remember) -> None:
        """Take in the replies of a chat soon; nothing of a chat that is known."""
        known = self._earlier.knows(request.chat) or any(chat == request.chat for chat, _ in self._waiting)
        if not known:
            pieces = (text[at : at + PIECE] for text in request.texts for at in range(0, len(text), PIECE))
            self._waiting += ((request.chat, piece) for piece in pieces)

    def forget(self, request: Forget) -> None:
        """Know nothing more of a chat, or of all that `remember` was told."""
        waiting, self._waiting = self._waiting, deque()
        if request.chat is None:
            self._earlier.forget_old()
        else:
            self._waiting += (piece for piece in waiting if piece[0] != request.chat)
            self._earlier.forget(request.chat)

    def digest(self) -> bool:
        """Take in one piece; False when nothing waits any more."""
        if self._earlier.full:
            self._waiting.clear()
        if self._earlier.waiting:
            self._earlier.digest()
        elif self._waiting:
            chat, text = self._waiting.popleft()
            self._earlier.add_old(chat, self._encode(text))
        return self._earlier.waiting or bool(self._waiting)
