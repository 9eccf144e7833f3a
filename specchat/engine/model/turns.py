"""Messages in the form that a chat template takes."""

from collections.abc import Sequence
from typing import Any

from specchat.engine.model.chat_format import FIELDS, PART, ChatFormat
from specchat.engine.model.sandbox import Assignable
from specchat.engine.options import Message
from specchat.engine.tool_calls.giving import as_users, given_calls, given_result, with_users_joined, written_calls


def turns_of(messages: Sequence[Message], form: ChatFormat) -> list[Any]:
    """The messages as a template of this format takes them."""
    return [_turn(message, form) for message in _placed(messages, form)]


def _placed(messages: Sequence[Message], form: ChatFormat) -> list[Message]:
    """The messages; without a system role, the user's first one begins with the system prompt."""
    if form.tools is None or form.tools.results == "user":
        messages = as_users(messages)
    elif form.tools.joined:
        messages = with_users_joined(messages)
    if form.headed and not any(message.role == "system" for message in messages):
        return [Message("system", ""), *messages]
    if form.system or not any(message.role == "system" for message in messages):
        return list(messages)
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    others = [message for message in messages if message.role != "system"]
    first = next((number for number, message in enumerate(others) if message.role == "user"), None)
    if first is None:
        return [Message("user", system), *others]
    others[first] = Message("user", f"{system}\n\n{others[first].content}")
    return others


def _turn(message: Message, form: ChatFormat) -> Any:
    """A message in the template's form."""
    content, tools = message.content, form.tools
    turn: dict[str, Any] = {"role": message.role}
    if message.tool_calls and tools is not None and tools.writes_calls:
        turn |= given_calls(message, tools)
        content = "" if tools.alone else content
    elif message.tool_calls:
        content = written_calls(message, tools)
    if message.role == "tool" and tools is not None:
        turn |= given_result(message, tools)
    turn["content"] = content
    if message.reasoning and form.reasoning in FIELDS:
        turn[form.reasoning] = message.reasoning
    parts: list[dict[str, str]] = [{"type": "text", "text": content}]
    if message.reasoning and form.reasoning == PART:
        turn["content"] = [{"type": "thinking", "thinking": message.reasoning}, *parts]
    elif "tool_calls" in turn and not content and tools is not None:
        turn["content"] = tools.nothing
    elif form.content == "parts":
        turn["content"] = parts
    return Assignable(turn) if form.content == "assignable" else turn
