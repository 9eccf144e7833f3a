"""Tool calls in OpenAI's form: as requests have them, and as streams send them in pieces."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specchat.engine.options import Message, Tool, ToolCall, ToolChoice
from specchat.remote.json_values import table, valid_text

MAX_CALLS = 128
"""Calls of a reply; what a server sends beyond is left out."""


def offered(tools: Sequence[Tool], choice: ToolChoice) -> dict[str, Any]:
    """The fields of a request with tools; none without."""
    if not tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
        for tool in tools
    ]
    named = choice not in ("auto", "required", "none")
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": {"type": "function", "function": {"name": choice}} if named else choice,
    }


def as_message(message: Message) -> dict[str, Any]:
    """A message with its calls, or with the result of one."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id
    return found


class CallPieces:
    """Gathers the calls of a reply."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, str]] = {}

    def add(self, pieces: Any) -> bool:
        """Take a delta's `tool_calls`; True if there are any. Fields of unexpected types count as absent."""
        found = [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
        for piece in found:
            index = piece.get("index")
            at = index if isinstance(index, int) and 0 <= index < MAX_CALLS else max(self._calls, default=0)
            call = self._calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
            function = table(piece.get("function"))
            call["arguments"] += valid_text(function.get("arguments"))
            # Some servers repeat id and name in each piece.
            call["name"] = call["name"] or valid_text(function.get("name"))
            call["id"] = call["id"] or valid_text(piece.get("id"))
        return bool(found)

    def read(self) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
        """The calls, and the text of those that are none: without a name, or with arguments that are no JSON object."""
        calls, unreadable = [], []
        for number, (_, call) in enumerate(sorted(self._calls.items())):
            arguments = call["arguments"].strip() or "{}"
            if call["name"] and _is_object(arguments):
                calls.append(ToolCall(call["id"] or f"call-{number}", call["name"], arguments))
            else:
                unreadable.append(f"{call['name']}({call['arguments']})")
        return tuple(calls), tuple(unreadable)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), Mapping)
    except (ValueError, RecursionError):
        return False
