"""The pair that is served: replies of one engine, a few at once, as async streams of events."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from specchat.config.catalog import Pair
from specchat.engine.protocol.events import Counted, Event, Failed, Finished, PromptProgress, Started, Step
from specchat.engine.protocol.options import Grammar, Limits
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.raw_prompt import RawPrompt
from specchat.engine.protocol.requests import Cancel, Count, Generate
from specchat.serve.errors import ApiError, without_folders
from specchat.serve.fields import Chat, ReplyFields
from specchat.serve.kept_responses import KeptResponses
from specchat.serve.metrics import Metrics
from specchat.serve.queue import FairQueue
from specchat.service.chat_service import ChatService

ReplyEvent = PromptProgress | Started | Step | Finished
ReplyEvents = AsyncGenerator[list[ReplyEvent], None]
Arrived = asyncio.Queue[list[ReplyEvent] | Exception | None]
Make = Callable[[int], Generate]
NO_CHAT = Chat(())
MAX_REPLIES = 128
"""Replies to one request."""
QUIET_S = 10.0
"""Seconds after which a client that waits hears that its request is alive: many give up at five minutes of silence."""


def several(make: partial[Generate], number: int, field: str = "n") -> list[Make]:
    """Requests for the number of replies to one prompt that `field` asks for, each with the seed after the last one's.

    Raises:
        ApiError: they are too many.
    """
    if number > MAX_REPLIES:
        raise ApiError(400, f"{field}: at most {MAX_REPLIES} replies can be asked for.", field)
    drawn = make.keywords["sampling"]
    return [partial(make, sampling=replace(drawn, seed=(drawn.seed + each) % 2**63)) for each in range(number)]


class Served:
    """Replies with `pair`, which `service` loads. Call all methods in one event loop."""

    def __init__(self, service: ChatService, pair: Pair) -> None:
        self.pair = pair
        self.begun = int(time.time())
        """The start, in seconds since 1970."""
        self.usual = service.preferences.settings(pair)
        """Settings of requests that leave them open."""
        self.queue = FairQueue()
        self.metrics = Metrics(pair.id, self.queue)
        self.responses = KeptResponses()
        self._service = service
        self._arriving = set[Arrived]()
        """Queues of events, one for each reply under way."""

    def loaded(self) -> PairInfo:
        """The loaded pair.

        Raises:
            ApiError: 503, none is loaded.
        """
        pair = self._service.loaded
        if pair.info is None:
            words = f"{self.pair.id} cannot be loaded: {without_folders(pair.error)}" if pair.error else "Loading model"
            raise ApiError(503, words)
        return pair.info

    async def run(self, show: Callable[[PairInfo | str], object] = lambda _: None) -> None:
        """Load the pair, and deliver the engine's events until cancelled.

        `show` gets what is loaded, or why it cannot be, whenever that changes.
        """
        self._service.load(self.pair, self.usual)
        shown: PairInfo | str = ""
        async for _ in self._service.updates():
            pair = self._service.loaded
            if (known := pair.info or pair.error) != shown:
                shown = known
                show(known)

    def end(self) -> None:
        """Have all replies fail, as the server ends."""
        for arrived in self._arriving:
            arrived.put_nowait(ApiError(503, "specchat serve was stopped. Try again once it runs."))

    async def reply(self, client: str, make: Make, progress: bool = False) -> ReplyEvents:
        """The events of a reply from Started to Finished, those that came together in a list.

        With `progress` those of reading the prompt come before. The list is empty after `QUIET_S` without any. Leaving
        the iterator cancels the reply, whose turn ends with its last event: a slow reader holds nobody. `make` gets the
        id.

        Raises:
            ApiError: the queue is full, or the engine fails.
        """
        self.loaded()
        arrived = Arrived()
        kinds = (PromptProgress, Started, Step, Finished) if progress else (Started, Step, Finished)

        def deliver(some: list[Event] | Exception | None) -> None:
            if not isinstance(some, list):
                arrived.put_nowait(some)
            elif known := [event for event in some if isinstance(event, kinds)]:
                arrived.put_nowait(known)

        answering = asyncio.create_task(self._answer(client, make, deliver))
        self._arriving.add(arrived)
        try:
            while True:
                try:
                    some = await asyncio.wait_for(arrived.get(), QUIET_S)
                except TimeoutError:
                    some = []
                if some is None:
                    break
                if isinstance(some, Exception):
                    raise some
                yield some
        finally:
            self._arriving.discard(arrived)
            answering.cancel()
            await asyncio.wait([answering])

    async def replies(self, client: str, makes: Sequence[Make], progress: bool = False) -> ReplyEvents:
        """The events of several replies, one after the other; raises as `reply` does."""
        for make in makes:
            async with aclosing(self.reply(client, make, progress)) as events:
                async for some in events:
                    yield some

    async def _answer(self, client: str, make: Make, deliver: Callable[[list[Event] | Exception | None], None]) -> None:
        """Deliver the events of a reply, and then None or what went wrong."""
        begun = time.monotonic()
        try:
            async with self.queue.turn(client), aclosing(self._events(make)) as events:
                queued = time.monotonic() - begun
                async for some in events:
                    last = some[-1]
                    if isinstance(last, Finished):
                        self.metrics.finished(last, queued)
                    deliver(some)
                    if isinstance(last, Failed):
                        self.metrics.failed()
                        raise ApiError.of(last)
            deliver(None)
        except Exception as error:
            deliver(error)

    def request(
        self,
        wanted: ReplyFields,
        chat: Chat = NO_CHAT,
        raw: RawPrompt = "",
        grammar: Grammar | None = None,
        logprobs: int | None = None,
        scored: bool = False,
    ) -> partial[Generate]:
        """A request for a reply to a chat, or to a `raw` prompt; `scored` see `Generate`.

        Raises:
            ApiError: a field cannot be used.
        """
        return partial(
            Generate,
            messages=chat.messages,
            prefill=chat.prefill,
            sampling=wanted.sampling(self.usual.sampling),
            limits=wanted.limits(),
            speculation=wanted.speculation(self.pair, self.usual.speculation),
            template=wanted.template(dict(self.loaded().template.choices)),
            raw=raw,
            grammar=grammar,
            tools=chat.use.tools,
            tool_choice=chat.use.choice,
            logprobs=logprobs,
            scored=scored,
        )

    async def count(self, wanted: ReplyFields, chat: Chat = NO_CHAT, raw: RawPrompt = "") -> Counted:
        """The prompt of a chat, or a `raw` one, as tokens.

        Raises:
            ApiError: the engine cannot count it.
        """
        template = wanted.template(dict(self.loaded().template.choices))
        id = self._service.listeners.new_id()
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        request = Count(id, chat.messages, Limits(context="refuse"), chat.prefill, template, raw, True, chat.use.tools)
        self._service.request(request, arrived.put_nowait)
        event = await arrived.get()
        if isinstance(event, Failed):
            raise ApiError.of(event)
        assert isinstance(event, Counted)
        return event

    async def _events(self, make: Make) -> AsyncGenerator[list[Event], None]:
        arrived: asyncio.Queue[Event] = asyncio.Queue()
        request = make(self._service.listeners.new_id())
        self._service.request(request, arrived.put_nowait)
        ended = False
        try:
            while not ended:
                some = [await arrived.get()]
                while not arrived.empty():
                    some.append(arrived.get_nowait())
                ended = isinstance(some[-1], Finished | Failed)
                yield some
        finally:
            if not ended:
                self._service.engine.send(Cancel(request.id))
