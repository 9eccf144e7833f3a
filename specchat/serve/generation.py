"""The pair that is served: replies of one engine, one at a time, as async streams of events."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from specchat.config.catalog import Pair
from specchat.engine.events import Counted, Event, Failed, Finished, Started, Step
from specchat.engine.options import Arguments, Message
from specchat.engine.pair import PairInfo
from specchat.engine.requests import Cancel, Count, Generate
from specchat.serve.errors import ApiError
from specchat.serve.metrics import Metrics
from specchat.serve.queue import FairQueue
from specchat.service.chat_service import ChatService

Make = Callable[[int], Generate]


class Served:
    """Replies with `pair`, which `service` loads. Call all methods in one event loop."""

    def __init__(self, service: ChatService, pair: Pair) -> None:
        self.pair = pair
        self.usual = service.preferences.settings(pair)
        """Settings of requests that leave them open."""
        self.queue = FairQueue()
        self.metrics = Metrics(pair.id, self.queue)
        self._service = service

    @property
    def info(self) -> PairInfo:
        """The loaded pair.

        Raises:
            ApiError: 503, none is loaded.
        """
        loaded = self._service.loaded
        if loaded.info is None:
            raise ApiError(503, f"{self.pair.id} cannot be loaded: {loaded.error}" if loaded.error else "Loading model")
        return loaded.info

    async def run(self) -> None:
        """Load the pair, and deliver the engine's events until cancelled."""
        self._service.load(self.pair, self.usual)
        async for _ in self._service.updates():
            pass

    async def reply(self, client: str, make: Make) -> AsyncGenerator[Started | Step | Finished, None]:
        """The events of a reply from Started to Finished; leaving the iterator cancels it. `make` gets the id.

        Raises:
            ApiError: the queue is full, or the engine fails.
        """
        self.info  # noqa: B018  raises
        begun = time.monotonic()
        async with self.queue.turn(client), aclosing(self._events(make)) as events:
            queued = time.monotonic() - begun
            async for event in events:
                match event:
                    case Failed():
                        self.metrics.failed()
                        raise ApiError.of(event)
                    case Step():
                        self.metrics.step(event)
                        yield event
                    case Finished():
                        self.metrics.finished(event, queued)
                        yield event
                    case Started():
                        yield event

    async def count(self, messages: tuple[Message, ...], template: Arguments = ()) -> int:
        """Tokens of a prompt.

        Raises:
            ApiError: the engine cannot count it.
        """
        self.info  # noqa: B018  raises
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        request = Count(self._service.listeners.new_id(), messages, template=template)
        self._service.request(request, arrived.put_nowait)
        event = await arrived.get()
        if isinstance(event, Failed):
            raise ApiError.of(event)
        assert isinstance(event, Counted)
        return event.tokens

    async def _events(self, make: Make) -> AsyncGenerator[Event, None]:
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        request = make(self._service.listeners.new_id())
        self._service.request(request, arrived.put_nowait)
        ended = False
        try:
            while not ended:
                event = await arrived.get()
                ended = isinstance(event, Finished | Failed)
                yield event
        finally:
            if not ended:
                self._service.engine.send(Cancel(request.id))
