"""The queue of requests: bounded, and fair between clients."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specchat.serve.errors import ApiError

MAX_WAITING = 64


class FairQueue:
    """One request runs at a time; clients with waiting requests take turns.

    All methods are for one event loop.
    """

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._running = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Futures of waiting requests by client, the client whose turn is next first."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        return int(self._running)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn of a request of `client`, and hold it inside.

        Raises:
            ApiError: 429, the queue is full.
        """
        if self._running:
            await self._wait(client)
        self._running = True
        try:
            yield
        finally:
            self._running = False
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
                self._running = False
                self._next()
            else:
                self._forget(client, turn)
            raise

    def _next(self) -> None:
        """Give the turn to the next client's first request that was not given up."""
        while self._waiting and not self._running:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                self._running = True
                turn.set_result(None)

    def _forget(self, client: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(client, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(client, None)
