"""Tool calls in OpenAI's form: as requests have them, and as streams send them in pieces."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specchat.engine.protocol.options import Message, Tool, ToolCall, ToolChoice
from specchat.remote.json_values import table, valid_text, whole
from specchat.remote.pictures import content

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
    """A message with its pictures and calls, or with the result of one.

    Raises:
        ServerError: a picture cannot be sent.
    """
    found: dict[str, Any] = {"role": message.role, "content": content(message)}
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id
    return found


@dataclass
class _Call:
    """A call, or a piece of one."""

    id: str
    name: str
    arguments: str

    def begins_after(self, call: "_Call", indexed: bool) -> bool:
        """True if this piece begins a call of its own, though its index is that of `call`, or it is not `indexed`.

        Some servers number all calls 0. Others repeat name and id in each piece, or invent a new id for each.
        """
        if not self.name or not call.name or (self.id and self.id == call.id):
            return False
        if self.name != call.name or (self.id and not indexed):
            return True
        return bool(self.arguments.strip()) and _is_object(call.arguments)


class CallPieces:
    """Gathers the calls of a reply."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def add(self, pieces: Any) -> bool:
        """Take a delta's `tool_calls`; True if there are any. Fields of unexpected types count as absent."""
        found = [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
        for piece in found:
            function = table(piece.get("function"))
            given = _Call(
                valid_text(piece.get("id")), valid_text(function.get("name")), _arguments(function.get("arguments"))
            )
            self._add(given, _index(piece.get("index")))
        return bool(found)

    def _add(self, given: _Call, index: int | None) -> None:
        if index is None:
            same = (call for call in self._calls if given.id and call.id == given.id)
            call = next(same, self._calls[-1] if self._calls else None)
        else:
            call = self._by_index.get(index)
        if call is not None and not given.begins_after(call, index is not None):
            call.id, call.name = call.id or given.id, call.name or given.name
            call.arguments += given.arguments
        elif len(self._calls) < MAX_CALLS:
            self._calls.append(given)
            if index is not None:
                self._by_index[index] = given

    def read(self) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
        """The calls, and the text of those that are none: without a name, or with arguments that are no JSON object."""
        calls, unreadable = [], []
        for number, call in enumerate(self._calls):
            arguments = call.arguments.strip() or "{}"
            if call.name and _is_object(arguments):
                calls.append(ToolCall(call.id or f"call-{number}", call.name, arguments))
            else:
                unreadable.append(f"{call.name}({call.arguments})")
        return tuple(calls), tuple(unreadable)


def _index(value: Any) -> int | None:
    """The number of a call, which some servers send as text; None without one."""
    return whole(int(value) if isinstance(value, str) and value.isdecimal() else value)


def _arguments(value: Any) -> str:
    """Arguments, or a piece of them, as JSON text; some servers send the JSON itself."""
    return valid_text(value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), Mapping)
    except (ValueError, RecursionError):
        return False
