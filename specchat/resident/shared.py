"""A client's side of the resident engine."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from specchat.dataclass import dataclass
from specchat.engine.process import wire
from specchat.engine.process.channel import Channel, Gone, Receiver
from specchat.engine.process.client import LOADER, EngineClient
from specchat.engine.protocol.events import (
    Changed,
    Elsewhere,
    Event,
    Failed,
    Finished,
    Loaded,
    Loading,
    OtherClient,
    Started,
    Step,
)
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Cancel, Change, Count, Generate, Load, Request, Shutdown
from specchat.private import is_private, opener
from specchat.resident import handshake
from specchat.resident.address import address, locked
from specchat.resident.workers import Restart, Restarted

JOIN_S = 5.0
"""Seconds for finding or starting a resident engine."""
ANSWER_S = 2.0
"""Seconds that a resident engine may take to answer."""
LOCAL_BITS = 24
"""Bits of a reply's number within its client."""
_NUMBERS = count()


@dataclass(frozen=True)
class Endpoint:
    """The address of a resident engine, and how one is started.

    It stays `linger_s` after its last client, and gives back a GPU's memory after `idle_s` without a request; 0: never.
    """

    socket: Path
    log: Path | None
    loader: str
    linger_s: float
    idle_s: float = 0.0


def open_engine(
    folder: Path, log: Path | None, client: str, linger_s: float, idle_s: float = 0.0, loader: str = LOADER
) -> EnginePort:
    """The resident engine of this user, started if there is none, for a program called `client`.

    Where no socket can be had in `folder`, an engine of this process alone.
    """
    path = address(folder, loader)
    if path is not None and is_private(folder):
        endpoint = Endpoint(path, log, loader, linger_s, idle_s)
        with contextlib.suppress(OSError, ImportError):
            if (link := _join(endpoint, client)) is not None:
                return SharedEngine(endpoint, client, link)
    return EngineClient(log, loader)


def join_background(folder: Path, client: str, loader: str = LOADER) -> "SharedEngine | None":
    """The resident engine, if one runs, for a program whose replies make way for those of others.

    It loads nothing: only a pair that is loaded can be had, and as long as nobody loads another in its place.
    """
    path = address(folder, loader)
    link = connected(path) if path is not None and is_private(folder) else None
    if path is None or link is None:
        return None
    if not _welcome(link, handshake.encoded(want="client", name=client, pid=os.getpid(), background=True)):
        link.close()
        return None
    return SharedEngine(Endpoint(path, None, loader, 0.0), client, link)


class SharedEngine(Receiver):
    """An `EnginePort` over a connection to the resident engine.

    Numbers of replies are made unlike those of all other clients on their way.
    """

    def __init__(self, endpoint: Endpoint, client: str, link: socket.socket) -> None:
        super().__init__()
        self.endpoint = endpoint
        self._name = client
        self._base = ((os.getpid() << 16) | (next(_NUMBERS) & 0xFFFF)) << LOCAL_BITS
        self._channel: Channel | None = self._over(link)
        self._pair: Load | None = None
        self._replies: list[int] = []
        self._restarts = 0
        self._restarting = False
        self._alive = True
        self._told = False
        """True if the worker's death was read, and nothing loaded since."""

    @property
    def alive(self) -> bool:
        return self._alive

    def start(self) -> None:
        """Join the resident engine again if the connection ended."""
        if self._channel is not None:
            return
        link = None
        with contextlib.suppress(OSError):
            link = _join(self.endpoint, self._name)
        if link is None:
            self._put(Failed(None, "died", "The engine process could not be started."))
        else:
            self._channel, self._alive = self._over(link), True

    def send(self, request: Request) -> None:
        if isinstance(request, Load):
            self._pair, self._told = request, False
        if self._channel is None or self._told:
            self._refuse(request)
            return
        if isinstance(request, Generate):
            self._replies.append(request.id)
        if isinstance(request, Generate | Count | Cancel | Change):
            request = replace(request, id=self._base + request.id)
        self._channel.send(request)

    def restart(self) -> None:
        """Have the worker started again, and the last pair reloaded; unread events are lost."""
        self._replies.clear()
        if self._channel is None:
            self.start()
            if self._pair is not None:
                self.send(self._pair)
            return
        self._restarts += 1
        self._restarting, self._told = True, False
        self._own = SimpleQueue()
        self._channel.send(Restart(self._restarts))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.end(Shutdown())
        self._channel, self._alive = None, False

    def _next(self, timeout: float | None) -> Event:
        """Wait up to `timeout` seconds for the next event; raises Empty."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._channel is None or not self._own.empty():
                return self._own.get_nowait()
            left = None if until is None else max(0.0, until - time.monotonic())
            event = self._channel.next(left)
            if isinstance(event, Gone):
                self._channel = None
                event = Failed(None, "died", "The engine that specchat's windows share has ended.")
            elif isinstance(event, Restarted):
                self._restarting = event.number != self._restarts
                continue
            elif self._restarting:
                continue
            return self._taken(event)

    def _over(self, link: socket.socket) -> Channel:
        reader = link.makefile("rb")

        def read() -> Iterator[Any]:
            with reader:
                if handshake.parsed(reader.readline(handshake.MAX_BYTES)) is None:
                    return
                for message in wire.read(reader):
                    if isinstance(message, Restarted) or (isinstance(message, Failed) and message.kind == "died"):
                        self._alive = isinstance(message, Restarted)
                    yield message

        def ended() -> None:
            self._alive = False
            link.close()

        return Channel(read, link.makefile("wb"), ended, self._arrived)

    def _taken(self, event: Event) -> Event:
        if not isinstance(event, Loading | Loaded | Elsewhere) and event.id is not None:
            if event.id >> LOCAL_BITS != self._base >> LOCAL_BITS:
                return _elsewhere(event)
            event = replace(event, id=event.id - self._base)
        if isinstance(event, Failed) and event.kind == "died":
            event = replace(event, id=self._replies[0] if self._replies else None)
            self._replies.clear()
            self._told = True
        elif isinstance(event, Finished | Failed) and event.id in self._replies:
            self._replies.remove(event.id)
        return event


def _elsewhere(event: Event) -> Elsewhere:
    assert isinstance(event, OtherClient | Started | Step | Changed | Finished | Failed)
    return Elsewhere(event)


def _join(endpoint: Endpoint, client: str) -> socket.socket | None:
    """A connection that has said hello, to the engine that is there or to one that is started; None if neither can be.

    Raises:
        OSError: no socket can be made there.
    """
    waits = {"linger_s": endpoint.linger_s, "idle_s": endpoint.idle_s}
    greeting = handshake.encoded(want="client", name=client, pid=os.getpid(), **waits)
    until = time.monotonic() + JOIN_S
    while time.monotonic() < until:
        link = connected(endpoint.socket)
        if link is not None:
            if _welcome(link, greeting):
                return link
            link.close()
        with locked(endpoint.socket) as lock:
            if lock is not None:
                _start(endpoint, lock)
                link = connected(endpoint.socket)
                if link is not None:
                    link.sendall(greeting)
                return link
        time.sleep(0.01)  # another client is starting it, or it is ending
    return None


def connected(path: Path) -> socket.socket | None:
    """A connection to a process of this user at `path`; None where none listens there."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(str(path))
    except OSError:
        link.close()
        return None
    if handshake.peer(link) != os.getuid():
        link.close()
        return None
    return link


def _welcome(link: socket.socket, greeting: bytes) -> bool:
    """Say hello and look whether an engine answers; its answer stays to be read."""
    link.settimeout(ANSWER_S)
    try:
        link.sendall(greeting)
        return handshake.parsed(link.recv(handshake.MAX_BYTES, socket.MSG_PEEK)) is not None
    except OSError:
        return False
    finally:
        link.settimeout(None)


def _start(endpoint: Endpoint, lock: int) -> None:
    """Start a resident engine that listens already and keeps the lock.

    Raises:
        OSError: the socket or the process cannot be had.
    """
    with contextlib.suppress(FileNotFoundError):
        endpoint.socket.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        before = os.umask(0o177)
        try:
            listening.bind(str(endpoint.socket))
        finally:
            os.umask(before)
        listening.listen(64)
        paths = [os.path.abspath(path) for path in sys.path]
        code = f"import sys; sys.path[:] = {paths!r}; from specchat.resident.broker import main; main(*sys.argv[1:])"
        command = [sys.executable, "-P", "-c", code, str(listening.fileno()), str(endpoint.socket)]
        command += [str(endpoint.log or ""), endpoint.loader]
        with _output(endpoint.log) as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(listening.fileno(), lock),
            )
    Thread(target=process.wait, name="engine's end", daemon=True).start()


def _output(log: Path | None) -> IO[bytes]:
    """The log, or where output is dropped."""
    with contextlib.suppress(OSError):
        return open(log or os.devnull, "ab", opener=opener if log else None)
    return open(os.devnull, "ab")
