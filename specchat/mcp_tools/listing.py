"""A server's list of tools, which may have several pages, and mistakes that do not make its other tools unusable."""

import json
from typing import Any

from mcp import Client
from mcp_types import JSONRPCResponse, Tool

from specchat.mcp_tools.served import MOST_TOOLS

MOST_PAGES = 100


def mend_tools(message: Any) -> None:
    """Make tools usable in a message from a server that lists some, which the package mcp would refuse as a whole."""
    response = getattr(message, "message", None)
    if isinstance(response, JSONRPCResponse) and isinstance(tools := response.result.get("tools"), list):
        response.result["tools"] = [_mended(tool) for tool in tools if isinstance(tool, dict)]


def _mended(tool: dict[str, Any]) -> dict[str, Any]:
    """The parts of a tool that are used; a schema of another type than an object's is one without arguments."""
    name, description, given = (tool.get(key) for key in ("name", "description", "inputSchema"))
    schema = given if isinstance(given, dict) and given.get("type", "object") in ("object", None) else {}
    schema = {**schema, "type": "object"}
    if "properties" in schema:
        named = properties.items() if isinstance(properties := schema["properties"], dict) else ()
        schema["properties"] = {key: one for key, one in named if isinstance(one, dict | bool)}
    if "required" in schema:
        names = required if isinstance(required := schema["required"], list) else []
        schema["required"] = [one for one in names if isinstance(one, str)]
    return {
        "name": name if isinstance(name, str) else "",
        "description": description if isinstance(description, str) else None,
        "inputSchema": schema,
    }


async def listed(client: Client) -> tuple[list[Tool], str]:
    """The server's tools, each once and a few more than are offered at most, and a note where the list has no end."""
    tools: dict[str, Tool] = {}
    if client.server_capabilities.tools is None:
        return [], ""
    cursor, before = None, set[str]()
    for _ in range(MOST_PAGES):
        found = await client.list_tools(cursor=cursor)
        tools |= {json.dumps(tool.model_dump(mode="json"), sort_keys=True): tool for tool in found.tools}
        cursor = found.next_cursor
        if not cursor or len(tools) > MOST_TOOLS:
            return list(tools.values()), ""
        if cursor in before:
            break
        before.add(cursor)
    return list(tools.values()), "The server's list of tools does not end; those that came are offered."
