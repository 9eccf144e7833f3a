"""A server that answers as a test wants it to, byte by byte."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent / "pages"
CHAT = "/v1/chat/completions"
PATIENCE_S = 60.0
EVENTS = "Content-Type: text/event-stream\r\n"


@dataclass
class Call:
    """A request; `send` answers it, in parts if need be."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    link: socket.socket

    def send(self, content: bytes | str, status: str = "200 OK", headers: str = EVENTS) -> None:
        """The head and a first part."""
        self.more(f"HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n")
        self.more(content)

    def more(self, content: bytes | str) -> None:
        with contextlib.suppress(OSError):
            self.link.sendall(content.encode() if isinstance(content, str) else content)

    def json(self, data: Any, status: str = "200 OK", headers: str = "") -> None:
        content = json.dumps(data).encode()
        self.send(content, status, f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n{headers}")

    def left(self, seconds: float = PATIENCE_S) -> bool:
        """Wait until the client closes the connection; False if it stays for so long."""
        self.link.settimeout(seconds)
        try:
            return self.link.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


Answer = Callable[[Call], None]


@dataclass
class Scripted:
    """`pages` answer by path: a file of PAGES, JSON data or a function; other paths do not exist."""

    pages: dict[str, str | Mapping[str, Any] | list[Any] | Answer]
    calls: list[Call] = field(default_factory=list)
    url: str = ""

    def of(self, path: str) -> list[Call]:
        """The calls of a path so far."""
        return [call for call in self.calls if call.path == path]

    def answer(self, call: Call) -> None:
        self.calls.append(call)
        page = self.pages.get(call.path)
        match page:
            case None:
                call.json({"detail": "Not Found"}, "404 Not Found")
            case str():
                kind = "text/event-stream" if page.endswith("stream.txt") else "text/plain"
                call.send((PAGES / page).read_bytes(), headers=f"Content-Type: {kind}\r\n")
            case dict() | list():
                call.json(page)
            case _:
                page(call)  # type: ignore[operator]


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None, /, **pages: Any) -> Iterator[Scripted]:
    """A scripted server; keywords are paths with __ for /. At the end all of its answers are over."""
    answering = list[threading.Thread]()
    found = {"/" + name.replace("__", "/"): page for name, page in pages.items()}
    scripted = Scripted(found)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scripted.url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    answering.append(threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True))
                    answering[-1].start()

        def handle(link: socket.socket) -> None:
            with contextlib.suppress(OSError), tls.wrap_socket(link, server_side=True) if tls else link as link:
                if (call := read(link)) is not None:
                    scripted.answer(call)

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield scripted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *answering):
                thread.join(PATIENCE_S)


def read(link: socket.socket) -> Call | None:
    """One request; connections are not used again."""
    head = b""
    while b"\r\n\r\n" not in head:
        part = link.recv(65536)
        if not part:
            return None
        head += part
    text, _, body = head.partition(b"\r\n\r\n")
    first, *lines = text.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += link.recv(65536)
    method, path, _ = first.split(" ")
    return Call(method, path, headers, json.loads(body) if body else None, link)


def delta(content: str = "", ends: str | None = None, **fields: Any) -> str:
    """An event of a stream."""
    choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": ends}
    return f"data: {json.dumps({'choices': [choice], **fields})}\n\n"
