"""The web server: it listens, answers until it is stopped, and says so once it can."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from specchat.engine.protocol.pair_info import PairInfo
from specchat.heap import give_back_large_blocks
from specchat.serve.app import make_app
from specchat.serve.errors import ApiError
from specchat.serve.generation import Served
from specchat.serve.guard import AccessCheck
from specchat.serve.raw_http import MAX_DRAINED, RawHttp

GRACE_S, READ_S = 2, 1
"""Seconds that replies have to end in once the server is stopped, and further ones in which clients can read of it."""

MAX_CONNECTIONS, AT_ONCE, BACKLOG = 192, 16, 128
"""Connections at a time, those that a turn of the loop accepts, so that 256 open files do, and those that may wait."""
REQUEST_S = 30
"""Seconds that a client has to send a request in."""
STALLED_S = 60
"""Seconds after which a client that reads nothing of its answer is left."""


class _Connection(H11Protocol):
    """A connection that ends where its client neither sends nor reads."""

    _sending: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _dropped = 0
    """Bytes that came after a request that is not HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sending = self.loop.call_later(REQUEST_S, transport.close)
        if len(self.connections) > MAX_CONNECTIONS:
            # Those that have a request are answered; of the others the oldest goes.
            ours = [one for one in self.connections if isinstance(one, _Connection)]
            waiting = {one._sending.when(): one for one in ours if one._sending is not None}
            oldest = waiting[min(waiting)]
            oldest._stop_waiting()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.ERROR:
            self._dropped += len(data)
            if self._dropped > MAX_DRAINED:
                self.transport.abort()
            return
        super().data_received(data)
        whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY, h11.ERROR)
        if whole:
            self._stop_waiting()
        elif self._sending is None:
            self._sending = self.loop.call_later(REQUEST_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; the client can send on until the connection ends, and then reads the answer."""
        long = getattr(sys.exception(), "error_status_hint", 400) == 431
        error = ApiError(431, "The headers are too long.") if long else ApiError(400, msg)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(error.openai()).encode()
            kinds = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            head = h11.Response(status_code=error.status, headers=[*kinds.items()])
            for part in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(part))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.write_eof()

    def _stop_waiting(self) -> None:
        """Wait for a request no longer."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in filter(None, (self._sending, self._reading)):
            timer.cancel()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: the default raises them again at the end."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def config(app: Starlette) -> uvicorn.Config:
    """The server's configuration."""
    return uvicorn.Config(
        RawHttp(app),
        http=_Connection,
        ws="none",
        backlog=AT_ONCE,
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=GRACE_S + READ_S,
    )


def url(listening: socket.socket) -> str:
    """The address of a socket, as clients need it."""
    address, port = listening.getsockname()[:2]
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


async def serve(
    served: Served,
    guard: AccessCheck,
    listening: socket.socket,
    ready: Callable[[], None],
    show: Callable[[PairInfo | str], object],
) -> int:
    """Answer requests until a signal comes, and return its number.

    `ready` is called once clients can connect, `show` as `Served.run` calls it.
    """
    give_back_large_blocks()
    server, loop, stopped = _Server(config(make_app(served, guard))), asyncio.get_running_loop(), 0

    def stop(number: int) -> None:
        nonlocal stopped
        stopped = number
        server.should_exit = True
        loop.call_later(GRACE_S, served.end)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    events = asyncio.create_task(served.run(show))
    serving = asyncio.create_task(server.serve([listening]))
    serving.add_done_callback(lambda _: events.cancel())
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    listening.listen(BACKLOG)
    ready()
    try:
        with suppress(asyncio.CancelledError):
            await events
    finally:
        server.should_exit = True
        await serving
    return stopped
