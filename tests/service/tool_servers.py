"""Servers of tools that answer as a test says, at once or when it says."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.options import ToolCall, Written
from specchat.mcp_tools.link import CallOutcome
from specchat.mcp_tools.served import ServedTool
from specchat.mcp_tools.servers import ToolServers
from specchat.mcp_tools.servers_file import ServerEntry


def offered(name: str, server: str = "files", description: str = "") -> ServedTool:
    fingerprint = f"{server}/{name} {description}"
    return ServedTool(server, name, description or f"Does {name}.", '{"type": "object"}', fingerprint)


READ, WRITE, FETCH = offered("read"), offered("write"), offered("fetch", "web")


class ScriptedServers(ToolServers):
    """Two servers. `made` holds the calls; `holds` keeps servers starting, or calls waiting for `answer`."""

    def __init__(self, *, starts: bool = True, answers: str | None = "done") -> None:
        entries = ServerEntry("files", "serve-files", ("--all",)), ServerEntry("web", url="http://127.0.0.1:1/mcp")
        super().__init__(entries)
        self.made: list[tuple[str, dict[str, Any]]] = []
        self.most: list[int] = []
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.closed = False
        self.answers = answers
        self.waiting: list[Future[CallOutcome]] = []
        self._starts = starts
        self._tools = {"files": (READ, WRITE), "web": (FETCH,)}

    def start(self, names: Iterable[str]) -> None:
        for name in names:
            if self._statuses[name].state not in ("ready", "starting"):
                self.started.append(name)
                self._statuses[name] = replace(self._statuses[name], state="starting", problem="")
                if self._starts:
                    self.come_up(name)

    def come_up(self, name: str, problem: str = "") -> None:
        """End the start of a server."""
        before = self._statuses[name]
        if problem:
            self._statuses[name] = replace(before, state="ended", problem=problem)
        else:
            self._statuses[name] = replace(before, state="ready", problem="", tools=self._tools[name])
        self.changed()

    def stop(self, name: str) -> None:
        self.stopped.append(name)
        self._statuses[name] = replace(self._statuses[name], state="ended")

    def call(self, tool: ServedTool, arguments: Mapping[str, Any], most: int) -> "Future[CallOutcome]":
        self.made.append((tool.name, dict(arguments)))
        self.most.append(most)
        future: Future[CallOutcome] = Future()
        if self.answers is not None:
            future.set_result(CallOutcome(True, self.answers, 0.25))
        else:
            self.waiting.append(future)
        return future

    def close(self) -> None:
        self.closed = True


def calling(*calls: tuple[str, str], text: str = "") -> Written:
    """A reply that calls tools, by names and arguments."""
    made = tuple(ToolCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls))
    return Written(text, tool_calls=made)
