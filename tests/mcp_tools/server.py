"""A real MCP server for the tests, run by itself: `server.py KIND [ARGUMENT]`."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("made", version="1")
WIRE = os.dup(1)
"""Standard output itself: what a tool prints goes elsewhere."""
CALLED = os.environ.get("CALLED")
"""A file that gets a line for each call."""


class Secret(BaseModel):
    password: str


def note(name: str) -> None:
    if CALLED:
        with Path(CALLED).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    note("add")
    return str(a + b)


@server.tool()
def environment(name: str) -> str:
    """Give an environment variable."""
    return os.environ.get(name, "(not set)")


@server.tool()
def wide(size: int) -> str:
    """Give a long text."""
    return "word " * (size // 5)


@server.tool()
def codes() -> str:
    """Give control codes."""
    return "a\x1b]52;c;aGk=\x07b\x9bc\u202ed"


@server.tool()
def fails() -> str:
    """Fail."""
    raise ToolError("there is no such file")


@server.tool()
def dies() -> str:
    """End the server."""
    note("dies")
    print("killed by the test", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def hangs() -> str:
    """Hang for good, and take no signal."""
    note("hangs")
    while True:
        time.sleep(1000)


@server.tool()
def floods() -> str:
    """Write without end on one line."""
    while True:
        os.write(WIRE, b"x" * 65536)


@server.tool()
def chatters() -> str:
    """Write messages without end."""
    while True:
        os.write(WIRE, b'{"jsonrpc": "2.0", "method": "notifications/made"}\n')


@server.tool()
async def asks(context: Context[Any, Any]) -> str:
    """Ask the user for a secret."""
    answer = await context.elicit("Your password?", Secret)
    return f"{answer}"


def main(kind: str) -> None:
    if kind == "huge":
        huge = "x" * 40_000

        def big(a: int) -> str:
            return str(a)

        server.tool(name="big", description="big")(big)
        server._tool_manager._tools["big"].parameters["description"] = huge
    server.run("stdio")


if __name__ == "__main__":
    main(sys.argv[1])
