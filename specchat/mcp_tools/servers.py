"""All servers: an event loop in a thread of its own, and what clients see of it from theirs."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.installing import install_command
from specchat.mcp_tools.importing import uninterrupted
from specchat.mcp_tools.served import ServedTool
from specchat.mcp_tools.servers_file import ServerEntry

if TYPE_CHECKING:  # the package mcp takes a second to import, and may be missing
    from specchat.mcp_tools.link import CallOutcome, ServerLink

CALL_S = 60.0
"""Seconds that a call may take unless the user's settings say it."""
CLOSE_S = 12.0
PACKAGE = "specchat[mcp]"
ToolServerState = Literal["off", "starting", "ready", "ended", "unusable"]
T = TypeVar("T")


@dataclass(frozen=True)
class ToolServerStatus:
    """A server as it is now; `problem` is a sentence where it does not do what it should."""

    entry: ServerEntry
    state: ToolServerState = "off"
    problem: str = ""
    tools: tuple[ServedTool, ...] = ()
    left_out: tuple[str, ...] = ()
    """A sentence for each tool that cannot be offered."""


class ToolServers:
    """The servers of `entries`. None is started before it is asked for, and `close` ends all.

    Call all methods from one thread. `changed` is called from another one, after each change of a server.
    """

    def __init__(self, entries: Sequence[ServerEntry], seconds: float = CALL_S) -> None:
        """A call may take `seconds`."""
        self._entries = {entry.name: entry for entry in entries}
        self._seconds = seconds
        self._lock = threading.Lock()
        self._statuses = {entry.name: _first_status(entry) for entry in entries}
        self._links: dict[str, ServerLink] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.changed: Callable[[], object] = lambda: None

    @property
    def statuses(self) -> Mapping[str, ToolServerStatus]:
        """All servers by name, in the order of the file."""
        with self._lock:
            return dict(self._statuses)

    def update(self, entries: Sequence[ServerEntry]) -> None:
        """Have these servers from now on; those that are gone or changed end."""
        before, self._entries = self._entries, {entry.name: entry for entry in entries}
        with self._lock:
            known = self._statuses
            self._statuses = {
                name: known[name] if before.get(name) == entry else _first_status(entry)
                for name, entry in self._entries.items()
            }
        for name in [name for name, entry in before.items() if self._entries.get(name) != entry]:
            if self._loop is not None:
                self._submit(self._forget(name))

    def start(self, names: Iterable[str]) -> None:
        """Start servers that do not run; their state tells what came of it."""
        for name in names:
            if self._usable(name):
                with self._lock:
                    status = self._statuses[name]
                    if status.state not in ("starting", "ready"):
                        self._statuses[name] = replace(status, state="starting", problem="")
                self._submit(self._start(name))

    def restart(self, name: str) -> None:
        """End a server that runs, and start it."""
        if self._usable(name):
            self._submit(self._restart(name))

    def stop(self, name: str) -> None:
        """End a server that runs."""
        if self._loop is not None:
            self._submit(self._stop(name))

    def call(self, tool: ServedTool, arguments: Mapping[str, Any], most: int) -> "Future[CallOutcome]":
        """Call a tool, whose result's text is cut to about `most` characters; cancel the future to stop it."""
        return self._submit(self._call(tool, dict(arguments), most))

    def close(self) -> None:
        """End all servers, and wait for their ends."""
        if self._loop is None or self._thread is None:
            return
        ending = self._submit(self._stop_all())
        try:
            ending.result(CLOSE_S)
        except TimeoutError:  # their guards end them with this process
            ending.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop = self._thread = None

    # In the thread of the event loop

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="tool servers", daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self, name: str) -> None:
        if name in self._entries:
            with suppress(ImportError):
                await self._link(name).start()

    async def _call(self, tool: ServedTool, arguments: dict[str, Any], most: int) -> "CallOutcome":
        if tool.server not in self._entries:
            from specchat.mcp_tools.link import CallOutcome

            return CallOutcome(False, f"There is no server {tool.server} any more.")
        return await self._link(tool.server).call(tool.name, arguments, most)

    async def _stop(self, name: str) -> None:
        if name in self._links:
            await self._links[name].stop()

    async def _forget(self, name: str) -> None:
        if (link := self._links.pop(name, None)) is not None:
            await link.stop()

    async def _restart(self, name: str) -> None:
        await self._stop(name)
        await self._start(name)

    async def _stop_all(self) -> None:
        await asyncio.gather(*(link.stop() for link in self._links.values()))

    def _link(self, name: str) -> "ServerLink":
        """The connection to a server.

        Raises:
            ImportError: the package cannot be used; the server's status says so.
        """
        try:
            with uninterrupted():
                from specchat.mcp_tools.link import ServerLink
        except ImportError as error:
            problem = f"The package mcp cannot be used ({one_line(str(error))}): {install_command(PACKAGE)}"
            with self._lock:
                self._statuses[name] = ToolServerStatus(self._entries[name], "unusable", problem)
            self.changed()
            raise
        if name not in self._links:
            self._links[name] = ServerLink(self._entries[name], self._seconds, self._took)
        return self._links[name]

    def _took(self, link: "ServerLink") -> None:
        """A server's state is another one."""
        name = link.entry.name
        if self._links.get(name) is link:
            with self._lock:
                self._statuses[name] = ToolServerStatus(link.entry, link.state, link.problem, link.tools, link.left_out)
            self.changed()

    def _usable(self, name: str) -> bool:
        return name in self._entries and self.statuses[name].state != "unusable"


def _first_status(entry: ServerEntry) -> ToolServerStatus:
    if entry.disabled:
        return ToolServerStatus(entry, "unusable", "mcp.json says that it is disabled.")
    if entry.problem:
        return ToolServerStatus(entry, "unusable", entry.problem)
    if find_spec("mcp") is None:
        return ToolServerStatus(entry, "unusable", f"It needs the package mcp: {install_command(PACKAGE)}")
    return ToolServerStatus(entry)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    import logging

    quiet = logging.getLogger("mcp")  # it would write to the terminal
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()
