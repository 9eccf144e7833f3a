"""Control messages of replies, from the thread that reads requests to the one that writes replies."""

from collections import deque
from threading import Lock

from specchat.engine.protocol.requests import Cancel, Change


class Mailbox:
    """Control messages of waiting and running replies, by their numbers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: dict[int, deque[Cancel | Change]] = {}

    def open(self, reply: int) -> None:
        with self._lock:
            self._messages[reply] = deque()

    def put(self, message: Cancel | Change) -> None:
        """Store a message for its reply; drop it if the reply has ended."""
        with self._lock:
            if message.id in self._messages:
                self._messages[message.id].append(message)

    def take(self, reply: int) -> Cancel | Change | None:
        with self._lock:
            waiting = self._messages.get(reply)
            return waiting.popleft() if waiting else None

    def cancelled(self, reply: int) -> bool:
        with self._lock:
            return any(isinstance(message, Cancel) for message in self._messages.get(reply, ()))

    def close(self, reply: int) -> None:
        with self._lock:
            self._messages.pop(reply, None)


class ReplyControl:
    """One reply's view of the mailbox."""

    def __init__(self, mailbox: Mailbox, reply: int) -> None:
        self._mailbox = mailbox
        self._reply = reply

    def poll(self) -> Cancel | Change | None:
        return self._mailbox.take(self._reply)
