"""The streams to a server: a process behind the guard, or Streamable HTTP, both within bounds."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import httpx2
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from specchat.mcp_tools import guard
from specchat.mcp_tools.listing import mend_tools
from specchat.mcp_tools.servers_file import ServerEntry

CONNECT_S = 10.0
_MOST_BYTES = guard.MOST_BYTES
"""Bytes of an HTTP response at most."""


@asynccontextmanager
async def streams(entry: ServerEntry, errors: TextIO, ended: Callable[[], object]) -> AsyncIterator[tuple[Any, Any]]:
    """The streams that are read from a server and written to it.

    A process writes its last words to `errors`, and `ended` is called once it is gone.

    Raises:
        OSError: no process can be started.
    """
    if entry.command:
        arguments = ["-I", "-S", str(Path(guard.__file__).resolve()), entry.command, *entry.args]
        env = dict(entry.env) or None
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=env, cwd=entry.cwd or None)
        async with stdio_client(parameters, errors) as (incoming, outgoing):
            yield _Watched(incoming, ended), outgoing
        return
    bounded = httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **entry.headers},
        timeout=httpx2.Timeout(CONNECT_S, read=None),
        transport=_BoundedHttp(),
        follow_redirects=False,
    )
    async with (
        bounded,
        streamable_http_client(entry.url, http_client=bounded, max_sse_event_size=_MOST_BYTES) as (incoming, outgoing),
    ):
        yield _Watched(incoming, lambda: None), outgoing


class _Watched:
    """A stream that mends lists of tools, and tells of its end."""

    def __init__(self, stream: Any, ended: Callable[[], object]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        message = await self._stream.receive()
        mend_tools(message)
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise
        mend_tools(message)
        return message

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        result: bool | None = await self._stream.__aexit__(kind, error, traceback)
        return result


class _BoundedHttp(httpx2.AsyncHTTPTransport):
    """Ends responses that are too long, or that are compressed, whose length nobody knows."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("The server sent a compressed response, which was not asked for.", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedBody(response.stream, request)
        return response


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, request: httpx2.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for data in self._stream:
            received += len(data)
            if received > _MOST_BYTES:
                raise httpx2.ReadError(f"The server sent more than {_MOST_BYTES >> 20} MB.", request=self._request)
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()
