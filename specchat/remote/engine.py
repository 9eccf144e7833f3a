"""An engine port whose pairs run on servers elsewhere: a thread of this process speaks with them."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from specchat.clean import one_line
from specchat.engine.backends import REMOTE_BACKEND, declared
from specchat.engine.errors import EngineError
from specchat.engine.process.channel import Receiver
from specchat.engine.protocol.events import Counted, Event, Failed, Finished, Loaded, Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import (
    LoadFacts,
    PairInfo,
    PairNotes,
    PairServer,
    PlainFacts,
    StrategyStatus,
    TargetFacts,
    TemplateFacts,
)
from specchat.engine.protocol.requests import Cancel, Count, Generate, Load, Request, Shutdown
from specchat.engine.strategies import STRATEGIES
from specchat.remote.connection import PATIENCE_S
from specchat.remote.errors import ServerError
from specchat.remote.link import FoundServer
from specchat.remote.pictures import explained, with_pictures
from specchat.remote.reply import RemoteReply

JOIN_S = 2.0
"""Seconds that closing waits for the thread."""
EXACTNESS = "the server's own promise, which specchat does not check"
CLEAR_KEY = "The key goes over the network unencrypted: use an https url."


class RemoteEngine(Receiver):
    """An `EnginePort` that answers one request after the other."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        """A server may be silent for `patience_s`."""
        super().__init__()
        self._patience_s = patience_s
        self._thread: _Worker | None = None
        self._pair: Load | None = None

    @property
    def alive(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        if self._thread is None:
            self._thread = _Worker(self._put, self._patience_s)

    def send(self, request: Request) -> None:
        if isinstance(request, Load):
            self._pair = request
        if self._thread is None:
            self._refuse(request)
        elif isinstance(request, Shutdown):
            self.close()
        else:
            self._thread.take(request)

    def restart(self) -> None:
        self.close()
        self.start()
        if self._pair is not None:
            self.send(self._pair)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.end()
        self._thread, self._own = None, SimpleQueue()

    def _next(self, timeout: float | None) -> Event:
        return self._own.get(timeout=timeout) if timeout != 0 else self._own.get_nowait()


class _Worker:
    """The thread and its event loop."""

    def __init__(self, put: Callable[[Event], None], patience_s: float) -> None:
        self._emit = put
        self._patience_s = patience_s
        self._ended = False
        self._loop = asyncio.new_event_loop()
        self._requests: asyncio.Queue[Load | Generate | Count] = asyncio.Queue()
        self._cancelled: set[int] = set()
        self._running: tuple[Load | Generate | Count, asyncio.Task[None]] | None = None
        self._counts: set[asyncio.Task[None]] = set()
        """Counts during a reply, which wait for none."""
        self._main: asyncio.Task[None] | None = None
        self._pair: PairSpec | None = None
        self._link: FoundServer | None = None
        self._undrafted: FoundServer | None = None
        """The connection to the server without drafting, once it was needed."""
        self._thread = Thread(target=self._run, name="remote engine", daemon=True)
        self._thread.start()

    def take(self, request: Request) -> None:
        """Queue a request; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._take, request)

    def end(self) -> None:
        """End all requests, and no longer put events."""
        self._ended = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(JOIN_S)

    def _put(self, event: Event) -> None:
        if not self._ended:
            self._emit(event)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        self._loop.close()

    def _stop(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _take(self, request: Request) -> None:
        match request:
            case Count() if self._running is not None and isinstance(self._running[0], Generate):
                self._counts.add(count := self._loop.create_task(self._answer(request)))
                count.add_done_callback(self._counts.discard)
            case Load() | Generate() | Count():
                if isinstance(request, Load) and self._running is not None:
                    self._running[1].cancel()
                self._requests.put_nowait(request)
            case Cancel():
                running = self._running
                if running is not None and isinstance(running[0], Generate) and running[0].id == request.id:
                    running[1].cancel()
                else:
                    self._cancelled.add(request.id)

    async def _serve(self) -> None:
        try:
            while True:
                request = await self._requests.get()
                task = self._loop.create_task(self._answer(request))
                self._running = (request, task)
                await asyncio.wait([task])
                self._running = None
                if task.cancelled():
                    self._stopped(request)
        finally:
            left = [*self._counts, *([self._running[1]] if self._running is not None else [])]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._close()

    async def _answer(self, request: Load | Generate | Count) -> None:
        id_ = None if isinstance(request, Load) else request.id
        try:
            match request:
                case Load():
                    await self._load(request.pair)
                case Generate():
                    await self._generate(request)
                case Count():
                    await self._count(request)
        except EngineError as error:
            self._put(Failed(id_, error.kind, error.message))
        except Exception as error:
            words = one_line(f"{type(error).__name__}: {error}").rstrip(".")
            self._put(Failed(id_, "internal", f"The connection to the server met an unexpected error ({words})."))

    def _stopped(self, request: Load | Generate | Count) -> None:
        """Answer a request that was cancelled before it put its end."""
        if isinstance(request, Generate):
            self._put(Finished.unbegun(request))
        else:
            self._put(Failed(None if isinstance(request, Load) else request.id, "request", "stopped"))

    async def _load(self, pair: PairSpec) -> None:
        server = pair.target.server
        assert server is not None
        begun = time.monotonic()
        self._put(Loading(f"asking {one_line(server.url, 80)}"))
        link = await FoundServer.open(server, pair.template, self._patience_s, lambda words: self._put(Loading(words)))
        await self._close()
        self._pair, self._link = pair, link
        self._put(Loaded(_info(pair, link, time.monotonic() - begun)))

    async def _close(self) -> None:
        for link in (self._link, self._undrafted):
            if link is not None:
                await link.close()
        self._link = self._undrafted = None

    async def _generate(self, request: Generate) -> None:
        _refuse_raw(request)
        if request.id in self._cancelled:
            self._cancelled.discard(request.id)
            self._put(Finished.unbegun(request))
            return
        link = await self._plain() if request.undrafted else self._there()
        if link.found.known.sees is False and with_pictures(request.messages):
            words = f"{one_line(link.found.model, 60)} at {link.connection.root} reads no pictures"
            raise ServerError(f"{words}. Leave them out, or choose another model.", "request")
        try:
            await RemoteReply(link.connection, link.found, request, self._put).write()
        except ServerError as error:
            raise explained(error, request.messages) from None

    async def _count(self, request: Count) -> None:
        _refuse_raw(request)
        link = self._there()
        found = link.found
        if self._running is not None and self._running[0] is request:
            link.connection.waiting = lambda _: None
        tokens = await found.count(link.connection, request)
        if tokens is None or not found.known.context:
            raise ServerError("This server does not count tokens.", "request")
        self._put(Counted(request.id, tokens, found.known.context))

    def _there(self) -> FoundServer:
        if self._link is None:
            raise ServerError("No pair is loaded.", "request")
        return self._link

    async def _plain(self) -> FoundServer:
        """The server that writes without drafting."""
        link, pair = self._there(), self._pair
        server = pair.target.server.undrafted if pair is not None and pair.target.server is not None else None
        if server is None or pair is None:
            if not link.found.dialect.undrafted:
                raise ServerError("This server decides by itself whether it drafts.", "request")
            return link
        if self._undrafted is None:
            self._undrafted = await FoundServer.open(server, pair.template, self._patience_s)
        if self._undrafted.found.known.drafts and not self._undrafted.found.dialect.undrafted:
            root = self._undrafted.connection.root
            raise ServerError(f"{root}, which plain names, drafts too. Start it without drafting.", "request")
        return self._undrafted


def _refuse_raw(request: Generate | Count) -> None:
    if request.raw:
        raise ServerError(
            "A pair on a server elsewhere answers chats alone. Send messages instead of a prompt.", "request"
        )


def _info(pair: PairSpec, link: FoundServer, seconds: float) -> PairInfo:
    found, connection = link.found, link.connection
    facts = declared(False, (), REMOTE_BACKEND)
    reasons = {name: one.unsupported(facts) for name, one in STRATEGIES.items()}
    place = one_line(connection.root, 80)
    return PairInfo(
        id=pair.id,
        name=pair.name,
        context=found.known.context or pair.context or 0,
        strategies=tuple(StrategyStatus(name, not reason, reason) for name, reason in reasons.items()),
        load=LoadFacts(f"{found.dialect.title} at {place}", seconds=seconds),
        notes=PairNotes(
            EXACTNESS, f"{one_line(found.model, 80)}: {found.known.note}", CLEAR_KEY if connection.reveals_key else ""
        ),
        server=PairServer(found.dialect.title, found.dialect.continues, found.known.sees is not None),
        target=TargetFacts(found.known.parameters),
        plain=PlainFacts(server=_plain_server(pair, link)),
        template=TemplateFacts(tools=found.dialect.takes_tools),
        sees=found.known.sees is not False,
    )


def _plain_server(pair: PairSpec, link: FoundServer) -> str:
    """The server that writes without drafting, in words."""
    server = pair.target.server
    if server is not None and server.undrafted is not None:
        return one_line(server.undrafted.url, 80)
    return one_line(link.connection.root, 80) if link.found.dialect.undrafted else ""
