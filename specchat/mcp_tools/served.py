"""The tools that servers offer, and their names for the model."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.mcp_tools.servers_file import ServerEntry

if TYPE_CHECKING:
    from mcp_types import Tool as McpTool

MOST_TOOLS = 100
MOST_SCHEMA = 32_000
"""Characters of a tool's JSON schema at most: it is part of every prompt."""
_DESCRIPTION = 4_000
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_NAME = 64
"""Characters of a name that every chat template and server takes."""


@dataclass(frozen=True)
class ServedTool:
    """A tool of `server`; `schema` is the JSON schema of its arguments as text."""

    server: str
    name: str
    description: str
    schema: str
    fingerprint: str
    """The server's name and more; it differs as soon as the server, or what it says of the tool, is another one."""


def served(entry: ServerEntry, tools: Iterable["McpTool"]) -> tuple[tuple[ServedTool, ...], tuple[str, ...]]:
    """The tools that can be offered, and a sentence for each that cannot."""
    usable: list[ServedTool] = []
    left_out: list[str] = []
    for tool in tools:
        name = one_line(tool.name, 60)
        schema = json.dumps(tool.input_schema, ensure_ascii=False)
        if len(usable) == MOST_TOOLS:
            left_out.append(f"Only the first {MOST_TOOLS} tools are offered.")
            break
        if len(schema) > MOST_SCHEMA:
            left_out.append(f"{name} is left out: its schema has {len(schema):,} characters.")
        elif not tool.name or clean(tool.name) != tool.name or len(tool.name) > 128:
            left_out.append(f"{name or 'A tool'} is left out: it has no usable name.")
        else:
            description = clean((tool.description or "")[:_DESCRIPTION])
            shown = json.dumps(_cleaned(tool.input_schema), ensure_ascii=False)
            usable.append(ServedTool(entry.name, tool.name, description, shown, _fingerprint(entry, tool, schema)))
    return tuple(usable), tuple(left_out)


def _cleaned(data: object) -> object:
    """JSON data whose texts are cleaned; cleaning the JSON itself could break it."""
    if isinstance(data, dict):
        return {clean(str(key)): _cleaned(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_cleaned(value) for value in data]
    return clean(data) if isinstance(data, str) else data


def _fingerprint(entry: ServerEntry, tool: "McpTool", schema: str) -> str:
    said = json.dumps([entry.name, entry.place, entry.cwd, tool.name, tool.description, schema])
    return fingerprints_of(entry.name) + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:20]


def fingerprints_of(server: str) -> str:
    """The beginning of the fingerprints of a server's tools."""
    return f"{server}/"


def by_name(tools: Iterable[ServedTool]) -> dict[str, ServedTool]:
    """The tools by names of letters, digits, _ and -; one that several servers have bears its server's name too."""
    listed = list(tools)
    short = Counter(_usable(tool.name) for tool in listed)
    named: dict[str, ServedTool] = {}
    for tool in listed:
        name = _usable(tool.name)
        if short[name] > 1:
            name = _usable(f"{tool.server}_{tool.name}")
        number = 2
        while name in named:
            name = f"{name[: _NAME - 4]}_{number}"
            number += 1
        named[name] = tool
    return named


def _usable(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name).strip("_")[:_NAME] or "tool"
