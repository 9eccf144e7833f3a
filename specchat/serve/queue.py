"""The queue of requests: bounded, and fair between clients."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specchat.engine.process.turns import AT_ONCE
from specchat.serve.errors import ApiError

MAX_WAITING = 64
RUNNING = AT_ONCE - 1
"""Requests that run at once: with one of the app's chats no more than the engine writes in turns."""


class FairQueue:
    """A few requests run at once; clients with waiting requests take turns.

    All methods are for one event loop.
    """

    def __init__(self, most: int = MAX_WAITING, at_once: int = RUNNING) -> None:
        self._most, self._at_once = most, at_once
        self.running = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Futures of waiting requests by client, the client whose turn is next first."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn of a request of `client`, and hold it inside.

        Raises:
            ApiError: 429, the queue is full.
        """
        if self.running < self._at_once:
            self.running += 1
        else:
            await self._wait(client)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, client: str) -> None:
        if self.waiting >= self._most:
            raise ApiError(429, f"{self._most} requests wait already. Try again later.")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came as its client left
                self._next()
            else:
                self._forget(client, turn)
            raise

    def _next(self) -> None:
        """End a turn: the next client's first request that was not given up has it then."""
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    def _forget(self, client: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(client, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(client, None)
