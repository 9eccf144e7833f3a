"""Servers that speak Streamable HTTP, on loopback."""

import json
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from specchat.mcp_tools import guard
from specchat.mcp_tools.servers import ToolServers
from specchat.mcp_tools.servers_file import ServerEntry

uvicorn = pytest.importorskip("uvicorn", reason="needs the package uvicorn")
pytest.importorskip("mcp", reason="needs the package mcp")
App = Callable[[Any, Any, Any], Awaitable[None]]


@contextmanager
def serving(app: App, lifespan: str = "on") -> Iterator[str]:
    """`app` on a port of its own; gives the address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan=lifespan, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@pytest.fixture(scope="module")
def seen() -> list[dict[str, str]]:
    return []


@pytest.fixture(scope="module")
def address(seen: list[dict[str, str]]) -> Iterator[str]:
    """A server of MCP's own package."""
    from mcp.server import MCPServer

    made = MCPServer("web", version="1")

    @made.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    app = made.streamable_http_app()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append({key.decode(): value.decode() for key, value in scope["headers"]})
        await app(scope, receive, send)

    with serving(noting) as root:
        yield f"{root}/mcp"


def status_of(servers: ToolServers) -> Any:
    servers.start(["web"])
    end = time.monotonic() + 60
    while servers.statuses["web"].state == "starting":
        assert time.monotonic() < end
        time.sleep(0.01)
    return servers.statuses["web"]


def test_a_tool_is_listed_and_called_with_the_users_headers(
    address: str, seen: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_KEY", "secret")
    servers = ToolServers([ServerEntry("web", url=address, headers={"Authorization": "Bearer ${WEB_KEY}"})])
    (tool,) = status_of(servers).tools
    outcome = servers.call(tool, {"a": 1, "b": 2}, 100).result(60)
    servers.close()
    assert (outcome.ok, outcome.text) == (True, "3")
    assert {headers["authorization"] for headers in seen} == {"Bearer secret"}


async def answer(send: Any, status: int, headers: dict[str, str], body: bytes = b"", times: int = 1) -> None:
    encoded = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    for _ in range(times):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def problem_with(app: App) -> str:
    with serving(app, lifespan="off") as root:
        servers = ToolServers([ServerEntry("web", url=f"{root}/mcp", headers={"Authorization": "Bearer k"})])
        status = status_of(servers)
        servers.close()
    assert status.state == "ended"
    return str(status.problem)


def test_a_server_that_floods_or_compresses_is_left() -> None:
    async def floods(_scope: Any, _receive: Any, send: Any) -> None:
        await answer(send, 200, {"content-type": "application/json"}, b"[" * 65536, 2 + guard.MOST_BYTES // 65536)

    async def compresses(_scope: Any, _receive: Any, send: Any) -> None:
        await answer(send, 200, {"content-type": "application/json", "content-encoding": "gzip"}, b"bomb")

    assert "more than 4 MB" in problem_with(floods)
    assert "compressed" in problem_with(compresses)


def test_the_key_follows_no_redirect_to_another_host() -> None:
    met: list[str] = []

    async def elsewhere(scope: Any, _receive: Any, send: Any) -> None:
        met.append(scope["path"])
        await answer(send, 200, {})

    with serving(elsewhere, lifespan="off") as other:

        async def redirects(_scope: Any, _receive: Any, send: Any) -> None:
            await answer(send, 307, {"location": f"{other}/mcp"})

        assert "not followed" in problem_with(redirects)
    assert met == []


def test_html_and_nobody_at_the_address_are_said_so() -> None:
    async def page(_scope: Any, _receive: Any, send: Any) -> None:
        await answer(send, 200, {"content-type": "text/html"}, b"<html>\x1b[31m")

    assert "text/html" in problem_with(page)
    servers = ToolServers([ServerEntry("web", url="http://127.0.0.1:9/mcp")])
    status = status_of(servers)
    servers.close()
    assert status.state == "ended"
    assert status.problem
    assert sys.executable not in status.problem


def test_a_session_that_an_older_server_forgot_is_begun_anew() -> None:
    """A server of before 2026, written out: it knows sessions, and no server/discover."""
    sessions: list[str] = []
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "a", "version": "1"},
    }
    tool = {"name": "say", "inputSchema": {"type": "object"}}
    results: dict[str, Any] = {
        "initialize": about,
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "said"}]},
    }

    async def older(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        sent = json.loads(body + message.get("body", b"") or b"{}")
        method, kind = sent.get("method"), {"content-type": "application/json"}
        session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
        if scope["method"] != "POST":
            await answer(send, 405, {})
        elif "id" not in sent:
            await answer(send, 202, {})
        elif method not in results:
            error = {"code": -32601, "message": "Method not found"}
            await answer(send, 200, kind, json.dumps({"jsonrpc": "2.0", "id": sent["id"], "error": error}).encode())
        elif method == "tools/call" and session != sessions[-1]:
            await answer(send, 404, {})
        else:
            if method == "initialize":
                sessions.append(f"s{len(sessions)}")
            headers = {**kind, "mcp-session-id": sessions[-1]}
            made = {"jsonrpc": "2.0", "id": sent["id"], "result": results[method]}
            await answer(send, 200, headers, json.dumps(made).encode())

    with serving(older, lifespan="off") as root:
        servers = ToolServers([ServerEntry("web", url=f"{root}/mcp")])
        (found,) = status_of(servers).tools
        assert servers.call(found, {}, 100).result(60).text == "said"
        sessions.append("forgotten")
        assert servers.call(found, {}, 100).result(60).text == "Session terminated"
        assert servers.call(found, {}, 100).result(60).text == "said"
        servers.close()
