"""HTTP to one server: JSON and events, waiting while it is busy, one sentence for each failure."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx2

from specchat.clean import one_line, valid
from specchat.engine.protocol.pair import Server
from specchat.remote.errors import BUSY, ServerError, refusal
from specchat.remote.event_stream import events
from specchat.remote.keys import find_key, key_in_words

CONNECT_S = 10.0
PATIENCE_S = 300.0
"""Seconds without a byte; reading a long prompt takes a busy server minutes."""
KEEP_ALIVE_S = 4.0
"""Seconds that a connection may be idle; llama.cpp's server and uvicorn close theirs after five."""
MAX_WAIT_S = 60.0
"""Seconds of waiting for a busy server, in all."""
MAX_BODY_BYTES = 16 << 20
MAX_ERROR_BYTES = 1 << 16
MAX_REDIRECTS = 3
_CHECK_URL = "Check url in models.toml."


class ServerConnection:
    """A server's address and key, and the connections to it."""

    def __init__(self, server: Server, patience_s: float = PATIENCE_S) -> None:
        """Connect to `server`, which may be silent for `patience_s`.

        Raises:
            ServerError: the key is not where the pair says, or cannot be sent.
        """
        self.root = server.url.rstrip("/").removesuffix("/v1").rstrip("/")
        self.waiting: Callable[[str], object] = lambda _: None
        """Gets a sentence while the server is busy."""
        key = find_key(server)
        self._key = key_in_words(server)
        self._headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._patience_s = patience_s
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(CONNECT_S, read=patience_s, write=patience_s),
            limits=httpx2.Limits(keepalive_expiry=KEEP_ALIVE_S),
            follow_redirects=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    @property
    def reveals_key(self) -> bool:
        """True if the key goes over a network without encryption."""
        url = httpx2.URL(self.root)
        return bool(self._key) and url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1")

    async def get(self, path: str) -> Any:
        """The JSON at `path`.

        Raises:
            ServerError: there is none.
        """
        return self._json(await self._body("GET", path), path)

    async def text(self, path: str) -> str:
        """The text at `path`.

        Raises:
            ServerError: there is none.
        """
        return (await self._body("GET", path)).decode("utf-8", "replace")

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers `body`.

        Raises:
            ServerError: there is none.
        """
        return self._json(await self._body("POST", path, body), path)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The events that answer `body`.

        Raises:
            ServerError: they cannot be had, or end early.
        """
        async with self._answer("POST", path, body) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                await self._read(response, MAX_ERROR_BYTES)
                raise ServerError(f"{self.root}{path} answered with no stream of events. {_CHECK_URL}")
            async for event in events(response.aiter_bytes(), self.root):
                yield event

    async def _body(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        async with self._answer(method, path, body) as response:
            return await self._read(response, MAX_BODY_BYTES)

    async def _read(self, response: httpx2.Response, limit: int) -> bytes:
        """The body, cut to `limit` bytes."""
        found = bytearray()
        async for chunk in response.aiter_bytes():
            found += chunk
            if len(found) >= limit:
                break
        return bytes(found[:limit])

    def _json(self, body: bytes, path: str) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            page = "a web page" if b"<" in body[:200] else "no JSON"
            raise ServerError(f"{self.root}{path} answered with {page}. {_CHECK_URL}", status=200) from None

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """A good answer, its body unread. The key goes to no other host."""
        url, waited, hops, tries = f"{self.root}{path}", 0.0, 0, 0
        content = None if body is None else valid(json.dumps(body, ensure_ascii=False)).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        with self._explained():
            while True:
                request = self._client.build_request(method, url, content=content, headers=headers)
                response = await self._client.send(request, stream=True)
                try:
                    status = response.status_code
                    pause = _pause(response, tries)
                    if status in BUSY and waited + pause <= MAX_WAIT_S:
                        self.waiting(f"{self.root} is busy ({status}): trying again in {max(1, round(pause))} s")
                    elif 300 <= status < 400 and status != 304:
                        url, hops, pause = self._moved(response, url, hops), hops + 1, 0.0
                    elif status >= 400:
                        said = await self._read(response, MAX_ERROR_BYTES)
                        raise refusal(self.root, status, said, self._key)
                    else:
                        yield response
                        return
                finally:
                    await response.aclose()
                if pause:
                    tries, waited = tries + 1, waited + pause
                    await asyncio.sleep(pause)

    def _moved(self, response: httpx2.Response, url: str, hops: int) -> str:
        """The path that a redirect leads to, if that is this server's."""
        here, place = httpx2.URL(url), response.headers.get("location", "")
        there = here.join(place)
        if hops >= MAX_REDIRECTS or not place:
            raise ServerError(f"{self.root} redirects without end. {_CHECK_URL}")
        if (here.scheme, here.host, here.port) != (there.scheme, there.host, there.port):
            origin = one_line(f"{there.scheme}://{there.netloc.decode('ascii', 'replace')}", 100)
            raise ServerError(
                f"{self.root} redirects to {origin}, to which nothing was sent. If you trust it, set it as the url.",
            )
        return str(there)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the HTTP library's errors into sentences."""
        try:
            yield
        except httpx2.ConnectTimeout:
            raise ServerError(f"{self.root} does not answer. Check url, and that the server runs.") from None
        except httpx2.TimeoutException:
            raise ServerError(f"{self.root} has sent nothing for {self._patience_s:g} s.") from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            why = one_line(str(error)).rstrip(".")
            hint = "Its certificate is not trusted" if "CERTIFICATE" in why else "Check url, and that the server runs"
            raise ServerError(f"{self.root} cannot be reached ({why}). {hint}.") from None
        except (httpx2.NetworkError, httpx2.ProtocolError):
            raise ServerError(f"{self.root} closed the connection in the middle of its answer.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = one_line(str(error)).rstrip(".")
            raise ServerError(f"{self.root} cannot be used ({why}). {_CHECK_URL}") from None


def _pause(response: httpx2.Response, tries: int) -> float:
    """Seconds to wait for a busy server: those that it asks for, else 1, 2, 4, ..."""
    with suppress(ValueError):
        return max(0.1, float(response.headers.get("retry-after", "")))
    return float(2**tries)
