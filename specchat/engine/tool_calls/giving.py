"""Tools, calls and results as a chat template takes them."""

import hashlib
import json
import re
from base64 import b32encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.options import Message, Tool, ToolCall
from specchat.engine.tool_calls.form import CallForm, ToolFormat

_NINE = re.compile(r"[A-Za-z0-9]{9}")


def given_tools(tools: Sequence[Tool], form: ToolFormat) -> dict[str, Any]:
    """The template's argument for tools, in OpenAI's form."""
    functions = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": _described(schema_of(tool)) if form.described else schema_of(tool),
            },
        }
        for tool in tools
    ]
    return {form.variable: json.dumps(functions, ensure_ascii=False) if form.as_text else functions}


def schema_of(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's parameters; without any parameter where the text is no object."""
    try:
        schema = json.loads(tool.parameters or "{}")
    except (ValueError, RecursionError):
        schema = {}
    return schema if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a description of each parameter."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {**schema, "properties": {}}
    filled = {name: {"description": "", **one} if isinstance(one, dict) else one for name, one in properties.items()}
    return {**schema, "properties": filled}


def given_calls(message: Message, form: ToolFormat) -> dict[str, Any]:
    """Fields of a message whose calls the template writes."""
    calls = [
        {
            "id": _id(call.id, form),
            "type": "function",
            "function": {"name": call.name, "arguments": object_of(call) if form.objects else call.arguments or "{}"},
        }
        for call in message.tool_calls
    ]
    return {"tool_calls": calls}


def object_of(call: ToolCall) -> dict[str, Any]:
    """A call's arguments; a text that is no JSON object becomes the only argument, `arguments`."""
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        found = call.arguments
    return found if isinstance(found, dict) else {"arguments": call.arguments}


def given_result(message: Message, form: ToolFormat) -> dict[str, Any]:
    """Fields of a message with a tool's result."""
    named = {"name": message.tool_name} if message.tool_name else {}
    return {"tool_call_id": _id(message.tool_call_id, form), **named}


def _id(text: str, form: ToolFormat) -> str:
    """An identifier that the template takes; the same for a call and its result."""
    if form.ids == "any" or _NINE.fullmatch(text):
        return text
    return short_id(text)


def short_id(text: str) -> str:
    """Nine letters and digits made of `text`."""
    return b32encode(hashlib.sha256(text.encode("utf-8", "replace")).digest()).decode()[:9].lower()


def written_calls(message: Message, form: ToolFormat | None) -> str:
    """An assistant's content with its calls as text, for templates that write none."""
    if form is None:
        calls = "\n".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    else:
        calls = _in_form(message.tool_calls, form.call)
    return "\n".join(filter(None, (message.content, calls)))


def _in_form(calls: Sequence[ToolCall], form: CallForm) -> str:
    """Calls as a model of this form writes them."""
    if form.kind == "python":
        inner = f"[{', '.join(map(_python, calls))}]"
    else:
        objects = [{form.keys.name: call.name, form.keys.arguments: object_of(call)} for call in calls]
        texts = [json.dumps(one, ensure_ascii=False) for one in objects]
        if form.closing:
            return "\n".join(f"{form.opening}\n{text}\n{form.closing}" for text in texts)
        inner = f"[{', '.join(texts)}]"
    return f"{form.opening}{inner}{form.closing}"


def _python(call: ToolCall) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in object_of(call).items())
    return f"{call.name}({given})"


def as_users(messages: Sequence[Message]) -> list[Message]:
    """The messages with results as the user's, those that follow each other in one."""
    made: list[Message] = []
    joined = False
    for message in messages:
        if message.role != "tool":
            made.append(message)
            joined = False
            continue
        text = f"Result of {message.tool_name or 'the call'}:\n{message.content}"
        if joined:
            made[-1] = made[-1].joined(Message("user", text))
        else:
            made.append(Message("user", text))
        joined = True
    return made


def with_users_joined(messages: Sequence[Message]) -> list[Message]:
    """The messages, a user's that follows a result joined to it."""
    made: list[Message] = []
    for message in messages:
        if message.role == "user" and made and made[-1].role == "tool":
            made[-1] = replace(made[-1], content=f"{made[-1].content}\n\n{message.content}")
        else:
            made.append(message)
    return made
