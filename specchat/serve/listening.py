"""The web server: it listens, answers until it is stopped, and says so once it can."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

from specchat.serve.app import make_app
from specchat.serve.generation import Served
from specchat.serve.guard import Guard

GRACE_S = 2
"""Seconds that replies have to end in once the server is stopped."""


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
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


def url(listening: socket.socket) -> str:
    """The address of a socket, as clients need it."""
    address, port = listening.getsockname()[:2]
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


async def serve(served: Served, guard: Guard, listening: socket.socket, ready: Callable[[], None]) -> int:
    """Answer requests until a signal comes, and return its number; `ready` is called once clients can connect."""
    config = uvicorn.Config(make_app(served, guard), lifespan="off", log_config=None, timeout_graceful_shutdown=GRACE_S)
    server, loop, stopped = _Server(config), asyncio.get_running_loop(), 0

    def stop(number: int) -> None:
        nonlocal stopped
        stopped = number
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    events = asyncio.create_task(served.run())
    serving = asyncio.create_task(server.serve([listening]))
    serving.add_done_callback(lambda _: events.cancel())
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    ready()
    try:
        with suppress(asyncio.CancelledError):
            await events
    finally:
        server.should_exit = True
        await serving
    return stopped
