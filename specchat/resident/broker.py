"""The resident engine: a process that owns workers and lends them to clients over a socket.

It ends a while after its last client left. An unused worker is given to the next client, whatever its pair, so that
few models are loaded at once.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

from specchat import __version__
from specchat.clean import one_line
from specchat.engine.process import wire
from specchat.engine.process.wire import Sealed
from specchat.engine.protocol.events import Failed
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.protocol.requests import Forget, ForgetRead, Load, Shutdown, Watch
from specchat.heap import give_back_large_blocks
from specchat.resident import handshake
from specchat.resident.workers import Client, Restart, SharedWorker

HANDSHAKE_S = 5.0
"""Seconds that a connection may take to say what it is."""
FIRST_CLIENT_S = 20.0
"""Seconds without a first client after which the process ends."""
STEPS_S = 0.005
"""Seconds that a step may wait for others: passing each on alone would take a core from quick steps."""
MAX_UNREAD = 64 << 20
"""Bytes that a client may leave unread before it is cut off."""
MAX_LINGER_S = 86_400.0
LOOK_S = 1.0
"""Seconds between two looks for workers that rest."""


class Broker:
    """Serves the listening socket of `path`. Output of workers goes to `log`."""

    def __init__(self, path: Path, log: Path | None, loader: str) -> None:
        self._path = path
        self._log = log
        self._loader = loader
        self._began = time.time()
        self._names: set[Client] = set()
        self._workers: list[SharedWorker] = []
        self._idle: dict[SharedWorker, asyncio.TimerHandle] = {}
        """When workers that nobody uses end."""
        self._last_request: dict[SharedWorker, float] = {}
        self._linger_s = self._idle_s = 0.0
        self._steps_wait = False
        """True while steps wait to be delivered."""
        self._over = asyncio.Event()
        self._ending: asyncio.TimerHandle | None = None

    async def serve(self, listening: socket.socket) -> None:
        """Serve until nothing is left to wait for."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        server = await asyncio.start_unix_server(self._accept, sock=listening, limit=handshake.MAX_BYTES)
        self._end_after(FIRST_CLIENT_S)
        loop.call_later(LOOK_S, self._rest)
        await self._over.wait()
        with contextlib.suppress(OSError):
            self._path.unlink()
        server.close()
        for worker in self._workers:
            worker.engine.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Find out who is there and what for."""
        link = writer.get_extra_info("socket")
        try:
            if handshake.peer(link) != os.getuid():
                return
            found = handshake.parsed(await asyncio.wait_for(reader.readline(), HANDSHAKE_S))
            match found and found.get("want"):
                case "client":
                    assert found is not None
                    await self._serve_client(found, reader, writer)
                case "status":
                    await _answer(writer, **self._status())
                case "forget":
                    assert found is not None
                    chat = handshake.text(found, "chat")
                    for worker in self._workers:
                        worker.engine.send(Forget(chat) if chat else ForgetRead())
                        worker.read = worker.read if chat else ReadTexts()
                    await _answer(writer, pid=os.getpid())
                case "stop":
                    await _answer(writer, pid=os.getpid())
                    self._over.set()
        except (OSError, ValueError, EOFError, TimeoutError, pickle.UnpicklingError):
            pass  # a connection that ends early, floods, or is none of ours
        finally:
            writer.close()

    async def _serve_client(
        self, found: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = Client(
            one_line(handshake.text(found, "name"), 20),
            int(handshake.number(found, "pid")),
            partial(_send, writer),
            background=found.get("background") is True,
        )
        if not client.background:
            self._linger_s = min(handshake.number(found, "linger_s"), MAX_LINGER_S)
            self._idle_s = handshake.number(found, "idle_s")
        self._names.add(client)
        if self._ending is not None:
            self._ending.cancel()
        try:
            await _answer(writer, pid=os.getpid(), version=__version__)
            while not isinstance(request := await _read(reader), Shutdown):
                self._handle(client, request)
        finally:
            self._names.discard(client)
            self._release(client)
            if not self._names:
                self._end_after(self._linger_s)

    def _handle(self, client: Client, request: Any) -> None:
        match request:
            case Load() if client.background and not self._has(request):
                client.send(Failed(None, "request", "This pair is not loaded."))
            case Load():
                worker = self._worker_for(client, request)
                if worker is not client.worker:
                    self._release(client)
                    client.worker = worker
                    worker.clients.append(client)
                    if worker in self._idle:
                        self._idle.pop(worker).cancel()
                worker.load(client, request.pair)
            case Watch():
                client.watch(request)
            case Restart() if client.worker is not None:
                client.worker.restart(client, request.number)
            case Forget(chat=str()):
                for worker in self._workers:
                    worker.engine.send(request)
            case _ if client.worker is not None:
                client.worker.forward(client, request)
        if client.worker is not None:
            self._last_request[client.worker] = time.monotonic()
        self._deliver()

    def _rest(self) -> None:
        """Have workers rest for which no request came for long."""
        asyncio.get_running_loop().call_later(LOOK_S, self._rest)
        for worker in self._workers:
            if not worker.idle:
                self._last_request[worker] = time.monotonic()
            elif self._idle_s and time.monotonic() - self._last_request[worker] >= self._idle_s:
                worker.rest()

    def _has(self, request: Load) -> bool:
        """True if a pair is loaded."""
        return any(worker.has(request.pair) and worker.info for worker in self._workers)

    def _worker_for(self, client: Client, request: Load) -> SharedWorker:
        """The worker that has the pair, in any context, or loads it, else the client's own, an idle or a new one."""
        same = next((worker for worker in self._workers if worker.has(request.pair)), None)
        if same is not None:
            return same
        if growing := next((worker for worker in self._workers if worker.grows_to(request.pair)), None):
            return growing
        if client.worker is not None and [one for one in client.worker.clients if not one.background] == [client]:
            return client.worker
        if idle := next((worker for worker in self._workers if not worker.clients), None):
            return idle
        worker = SharedWorker(self._log, self._loader, partial(self._arrived, asyncio.get_running_loop()))
        self._workers.append(worker)
        return worker

    def _release(self, client: Client) -> None:
        """Take a client's worker from it; one that nobody uses ends later, or is given to another client."""
        if (worker := client.worker) is None:
            return
        worker.remove(client)
        if not worker.clients:
            self._idle[worker] = asyncio.get_running_loop().call_later(self._linger_s, self._end_idle, worker)

    def _end_idle(self, worker: SharedWorker) -> None:
        del self._idle[worker]
        self._workers.remove(worker)
        self._last_request.pop(worker, None)
        worker.engine.close()

    def _arrived(self, loop: asyncio.AbstractEventLoop, event: object) -> None:
        """Deliver what came, in a worker's reading thread: steps together with those right after them."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            if not isinstance(event, Sealed):
                loop.call_soon_threadsafe(self._deliver)
            elif not self._steps_wait:
                self._steps_wait = True
                loop.call_soon_threadsafe(loop.call_later, STEPS_S, self._deliver)

    def _deliver(self) -> None:
        self._steps_wait = False
        for worker in self._workers:
            for client, event in worker.events():
                client.send(event)

    def _end_after(self, seconds: float) -> None:
        self._ending = asyncio.get_running_loop().call_later(seconds, self._over.set)

    def _status(self) -> dict[str, Any]:
        now = time.time()
        return {
            "pid": os.getpid(),
            "version": __version__,
            "seconds": now - self._began,
            "linger_s": self._linger_s,
            "clients": [{"name": client.name, "pid": client.pid} for client in self._names if client.worker is None],
            "workers": [
                {
                    "pid": worker.engine.pid,
                    "pair": worker.pair.name if worker.pair else "",
                    "device": worker.info.load.device if worker.info else "",
                    "state": _state(worker),
                    "read_bytes": worker.read.memory,
                    "replies_a_pass": worker.replies_a_pass,
                    "clients": [
                        {"name": client.name, "pid": client.pid, "waiting": len(client.waiting)}
                        for client in worker.clients
                    ],
                }
                for worker in self._workers
            ],
        }


def _state(worker: SharedWorker) -> str:
    if worker.dead:
        return "ended"
    if worker.info is None:
        return "loading" if worker.pair else "empty"
    return "resting" if worker.resting else "loaded"


def _send(writer: asyncio.StreamWriter, event: Any) -> None:
    """Send to a client that may be gone; one that does not read is cut off."""
    if writer.is_closing():
        return
    if writer.transport.get_write_buffer_size() > MAX_UNREAD:
        writer.transport.abort()
        return
    writer.write(event.frame if isinstance(event, Sealed) else wire.framed(event))


async def _read(reader: asyncio.StreamReader) -> Any:
    """The next request.

    Raises:
        EOFError: the connection ended.
        pickle.UnpicklingError: it is not ours.
    """
    length, _ = wire.HEADER.unpack(await reader.readexactly(wire.HEADER.size))
    if length > wire.MAX_BYTES:
        raise pickle.UnpicklingError(f"a message of {length} bytes")
    return wire.opened(await reader.readexactly(length))


async def _answer(writer: asyncio.StreamWriter, **known: object) -> None:
    writer.write(handshake.encoded(**known))
    await writer.drain()


def main(descriptor: str, path: str, log: str, loader: str) -> None:
    """Serve the inherited socket `descriptor`; `log` may be empty."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    give_back_large_blocks()
    broker = Broker(Path(path), Path(log) if log else None, loader)
    asyncio.run(broker.serve(socket.socket(fileno=int(descriptor))))
    os._exit(0)  # threads of workers may still read
