"""HTTP as no library sends it: answers that come before a request's end, whole addresses, and no HTTP at all."""

import asyncio
import json
import socket

import pytest

from specchat.serve import guard, listening, raw_http
from tests.fake import FakeEngine
from tests.serve.conftest import SOON_S, Server, serving

POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
CLOSE = b"connection: close\r\n"
LONG = (32 << 20) + (1 << 20)
BODY = b"content-length: %d\r\n\r\n" % LONG + b"x" * LONG
CHUNKS = b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n" % LONG + b"x" * LONG + b"\r\n0\r\n\r\n"


def asked(server: Server, sent: bytes) -> bytes:
    """The whole answer to what a client sends before it reads; raises OSError where the connection is reset."""
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), SOON_S) as client:
        client.sendall(sent)
        found = bytearray()
        while some := client.recv(1 << 16):
            found += some
    return bytes(found)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (POST + b"x: " + b"a" * 1_000_000 + b"\r\n\r\n", 431, "The headers are too long"),
        (POST + CLOSE + BODY, 413, "at most 32 MiB"),
        (POST + CLOSE + CHUNKS + CHUNK, 413, "at most 32 MiB"),
        (b"POST /no HTTP/1.1\r\nhost: localhost\r\n" + CLOSE + BODY, 404, "There is no /no here"),
        (POST + CHUNKS + b"x\r\n", 400, "Invalid HTTP request"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + CHUNKS + b"x\r\n", 400, "Invalid HTTP request"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nno\r\n\r\n" + b"x" * LONG, 400, "Invalid HTTP request"),
    ],
    ids=["header", "body", "chunks", "route", "chunk", "chunk nobody reads", "second"],
)
async def test_who_sends_before_reading_gets_the_answer(
    engine: FakeEngine, caplog: pytest.LogCaptureFixture, sent: bytes, status: int, words: str
) -> None:
    async with serving(engine) as server:
        head, _, body = (await asyncio.to_thread(asked, server, sent)).rpartition(b"\r\n\r\n")
        assert words in json.loads(body)["error"]["message"]
        assert b"HTTP/1.1 %d " % status in head
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(("drained", "seconds"), [(1, 1e6), (1 << 30, 0.05)], ids=["bytes", "seconds"])
@pytest.mark.parametrize("sent", [b"no\r\n\r\n", b"POST /no HTTP/1.1\r\nhost: localhost\r\n" + CLOSE + BODY[:40]])
async def test_what_is_read_for_nothing_is_bounded(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, sent: bytes, drained: int, seconds: float
) -> None:
    for module in (raw_http, listening):
        monkeypatch.setattr(module, "MAX_DRAINED", drained)
    monkeypatch.setattr(listening, "REQUEST_S", seconds)
    async with asyncio.timeout(SOON_S), serving(engine) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        writer.write(sent)
        assert b"HTTP/1.1 40" in await reader.readuntil(b"}")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.005)


async def test_the_length_alone_tells_that_a_body_is_too_long(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        head = POST + CLOSE + b"content-length: %d\r\n\r\n" % (guard.MAX_BODY + 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        writer.write(head)
        assert b" 413 " in await reader.readline()
        writer.close()


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/health", 200),
        (b"HTTP://127.0.0.1:1/health?x=1", 200),
        (b"http://elsewhere.example/v1/models", 403),
        (b"http://localhost", 404),
    ],
)
async def test_a_whole_address_is_answered_as_its_path(engine: FakeEngine, target: bytes, status: int) -> None:
    async with serving(engine) as server:
        sent = b"GET " + target + b" HTTP/1.1\r\nhost: localhost\r\n" + CLOSE + b"\r\n"
        assert (await asyncio.to_thread(asked, server, sent)).startswith(b"HTTP/1.1 %d " % status)
