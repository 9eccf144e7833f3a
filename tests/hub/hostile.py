"""A hub that says what a test wants it to, byte by byte: what comes from it need not be HTTP, true or ever end."""

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote

Say = Callable[[str, Mapping[str, str]], Iterable[bytes]]
"""What is answered to a path and headers, in pieces."""


@dataclass
class HostileHub:
    """Its words are those of `say`. `asked` are method and path of each request with the headers."""

    say: Say
    endpoint: str = ""
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    over: Event = field(default_factory=Event)
    """Set at the end: answers without end stop then."""


@contextmanager
def hostile_hub(say: Say) -> Iterator[HostileHub]:
    """Serve while the block runs."""
    hub = HostileHub(say)
    listening = socket.create_server(("127.0.0.1", 0))
    hub.endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def serve() -> None:
        with suppress(OSError):
            while True:
                Thread(target=_answer, args=(hub, listening.accept()[0]), daemon=True).start()

    Thread(target=serve, daemon=True).start()
    try:
        yield hub
    finally:
        hub.over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _answer(hub: HostileHub, connection: socket.socket) -> None:
    with connection, suppress(OSError):
        asked = b""
        while b"\r\n\r\n" not in asked:
            if not (came := connection.recv(1 << 16)):
                return
            asked += came
        first, *lines = asked.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        path = unquote(first.split(" ")[1].split("?")[0])
        hub.asked.append((first, headers))
        for piece in hub.say(path, headers):
            connection.sendall(piece)
            if hub.over.is_set():
                return


def head(status: str = "200 OK", **headers: object) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}Connection: close\r\n\r\n".encode()


def whole(body: bytes, **headers: object) -> list[bytes]:
    return [head(Content_Length=len(body), **headers) + body]


def as_json(value: Any) -> list[bytes]:
    return whole(json.dumps(value).encode())


def for_ever(piece: bytes, pause: float = 0.0) -> Iterator[bytes]:
    while True:
        yield piece
        if pause:
            Event().wait(pause)
