"""Connections whose clients neither send nor read, over a real socket."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from specchat.chat.store import Store
from specchat.serve import listening
from specchat.serve.generation import Served
from specchat.serve.guard import AccessCheck
from specchat.service.chat_service import ChatService
from specchat.service.settings import Preferences
from tests.fake import FakeEngine
from tests.serve.conftest import SOON_S
from tests.service.made import CATALOG, Clock


class Endless:
    """A server of answers without an end; `left` is set once one was given up."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def answer(self, request: Request) -> StreamingResponse:
        del request
        return StreamingResponse(self._text())

    async def _text(self) -> AsyncIterator[str]:
        try:
            while True:
                yield "word " * 10_000
                await asyncio.sleep(0)
        finally:
            self.left.set()


@asynccontextmanager
async def served(endless: Endless) -> AsyncIterator[tuple[str, int]]:
    """The address of a server with the limits of ours."""
    here = listening.listen("127.0.0.1", 0)
    server = uvicorn.Server(listening.config(Starlette(routes=[Route("/", endless.answer)])))
    task = asyncio.create_task(server.serve([here]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(SOON_S):
            yield here.getsockname()
    finally:
        server.should_exit = server.force_exit = True
        await task


async def test_a_client_that_stops_reading_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "STALLED_S", 0.05)
    endless = Endless()
    async with served(endless) as address:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(address)
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await endless.left.wait()


HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"content-length: 9\r\n\r\n{"])
async def test_a_request_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(listening, "REQUEST_S", 0.05)
    async with served(Endless()) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        while await reader.read(1 << 16):
            pass
        writer.close()


async def test_of_too_many_connections_the_oldest_without_a_request_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 2)
    asked = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with served(Endless()) as address:
        first, writing = await asyncio.open_connection(*address)
        writing.write(asked)
        assert await first.readline() == b"HTTP/1.1 200 OK\r\n"
        *others, newest = [socket.create_connection(address) for _ in range(8)]
        for other in others:
            reader, more = await asyncio.open_connection(sock=other)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            more.close()
        last, writer = await asyncio.open_connection(sock=newest)
        writer.write(asked)
        assert await last.readline() == b"HTTP/1.1 200 OK\r\n"
        for one in (writing, writer):
            one.close()


async def test_replies_that_a_stop_cuts_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "GRACE_S", 0.05)
    engine, ready = FakeEngine(tokens_per_second=1, clock=Clock()), asyncio.Event()
    served = Served(ChatService(engine, Store(), Preferences()), CATALOG.pairs[0])
    here = listening.listen("127.0.0.1", 0)
    running = asyncio.create_task(
        listening.serve(served, AccessCheck("127.0.0.1"), here, lambda: None, lambda _: ready.set())
    )
    async with asyncio.timeout(SOON_S), httpx2.AsyncClient(timeout=SOON_S) as client:
        await ready.wait()
        url, body = f"{listening.url(here)}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}
        asking = [asyncio.create_task(client.post(url, json={**body, "stream": stream})) for stream in (False, True)]
        while served.queue.running < len(asking):
            await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)
        whole, streamed = [await one for one in asking]
        assert await running == signal.SIGTERM
    assert whole.status_code == 503
    for answer in (whole, streamed):
        assert "specchat serve was stopped" in answer.text
    assert not any(record.exc_info for record in caplog.records)
    engine.close()
