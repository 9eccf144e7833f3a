"""The connection to one server: started, asked for its tools, called, and ended, in the event loop of all servers."""

import asyncio
import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TextIO

import anyio
from mcp import Client, Implementation, MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST
from pydantic import ValidationError

from specchat import __version__
from specchat.clean import one_line, valid
from specchat.config.errors import ConfigError
from specchat.mcp_tools.listing import listed
from specchat.mcp_tools.results import as_text
from specchat.mcp_tools.served import ServedTool, served
from specchat.mcp_tools.servers_file import ServerEntry
from specchat.mcp_tools.transport import streams

START_S = 60.0
"""Seconds that a server has to start and to list its tools; some are downloaded first."""
END_S = 10.0
"""Seconds after which a server that was told to end is not waited for any more."""
_BROKEN = (CONNECTION_CLOSED, INVALID_REQUEST, INTERNAL_ERROR)
"""Codes of errors after which an HTTP connection is of no use."""
_WORDS = 300
"""Characters of a server's own words that are shown."""
LinkState = Literal["off", "starting", "ready", "ended"]


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call: text for the model, and True if the tool did what was asked."""

    ok: bool
    text: str
    seconds: float = 0.0


class ServerLink:
    """One server, started when it is needed first; `changed` is called with it after each change of `state`."""

    def __init__(self, entry: ServerEntry, seconds: float, changed: Callable[["ServerLink"], object]) -> None:
        """A call may take `seconds`."""
        self.entry = entry
        self.state: LinkState = "off"
        self.problem = ""
        """Why it ended, in a sentence; empty where it was told to."""
        self.tools: tuple[ServedTool, ...] = ()
        """The tools that the server listed last; a call starts it again."""
        self.left_out: tuple[str, ...] = ()
        self._seconds = seconds
        self._changed = changed
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._scope = anyio.CancelScope()
        self._why: str | None = None
        """Why it was told to end; None while it was not."""
        self._moved = asyncio.Event()
        """Set at the next change of state."""

    async def start(self) -> None:
        """Start the server unless it runs; one that is ending is waited for."""
        if self._why is not None and self._task is not None:
            await asyncio.wait([self._task], timeout=END_S)
        if self._task is None or self._task.done():
            self._scope = anyio.CancelScope(deadline=anyio.current_time() + START_S)
            self._why, self.problem = None, ""
            self._set("starting")
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the server."""
        self._end("")
        if self._task is not None:
            await asyncio.wait([self._task], timeout=END_S)

    async def call(self, tool: str, arguments: dict[str, Any], most: int) -> CallOutcome:
        """Call a tool, starting the server where it does not run; its text has at most about `most` characters."""
        await self.start()
        while self.state == "starting":
            await self._moved.wait()
        if self._client is None:
            return CallOutcome(False, f"The server {self.entry.name} does not run. {self.problem}".strip())
        begun = monotonic()
        try:
            with anyio.fail_after(self._seconds):
                given = json.loads(valid(json.dumps(arguments, ensure_ascii=False)))
                result = await self._client.call_tool(tool, given)
            return CallOutcome(not result.is_error, as_text(result, most), monotonic() - begun)
        except TimeoutError:
            why = f"The tool gave no answer within {self._seconds:g} s, and its server was ended."
            self._end(why)
        except Exception as error:
            why = _words(error)
            if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and self._task is not None:
                await asyncio.wait([self._task], timeout=END_S)
                why = f"The server ended before it answered. {self.problem}"
            elif isinstance(error, MCPError) and self.entry.url and error.code in _BROKEN:
                self._end(why)  # a session that the server forgot; the next call begins another
        return CallOutcome(False, why.strip(), monotonic() - begun)

    def _end(self, why: str) -> None:
        if self._why is None:
            self._why = why
            self._scope.cancel()

    def _set(self, state: LinkState) -> None:
        self.state = state
        self._moved.set()
        self._moved = asyncio.Event()
        self._changed(self)

    # The task that owns the connection

    async def _run(self) -> None:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            problem = await self._until_ended(errors)
        self._client = None
        self.problem = problem if self._why is None else self._why
        self._set("ended")

    async def _until_ended(self, errors: TextIO) -> str:
        """Connect, and stay connected; gives the reason of the end in a sentence."""
        scope = self._scope
        try:
            with scope:
                await self._connected(self.entry.resolved(os.environ), errors)
        except ConfigError as error:
            return error.message
        except Exception as error:
            leaf = _leaf(error)
            if not (isinstance(leaf, MCPError) and leaf.code == CONNECTION_CLOSED):
                return _words(error)
        if scope.deadline <= anyio.current_time():
            return f"It was not ready within {START_S:g} s."
        errors.seek(0)
        words = one_line(errors.read()[-_WORDS:], _WORDS)
        return f"It ended by itself: {words}" if words else "It ended by itself, without a word."

    async def _connected(self, entry: ServerEntry, errors: TextIO) -> None:
        """Connect, ask for the tools, and stay until cancelled."""
        about = Implementation(name="specchat", version=__version__)
        async with Client(streams(entry, errors, self._scope.cancel), client_info=about) as client:
            tools, note = await listed(client)
            self.tools, left_out = served(self.entry, tools)
            self.left_out = (*left_out, note) if note else left_out
            self._client = client
            self._scope.deadline = math.inf
            self._set("ready")
            await anyio.sleep_forever()


def _leaf(error: Exception) -> Exception:
    """The first exception of a group of groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _words(error: Exception) -> str:
    leaf = _leaf(error)
    if isinstance(leaf, ValidationError):
        first = leaf.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return one_line(f"The server's answer does not follow MCP ({place}: {first['msg']}).", _WORDS)
    words = leaf.message if isinstance(leaf, MCPError) else (getattr(leaf, "strerror", None) or str(leaf))
    return one_line(words, _WORDS) or type(leaf).__name__
