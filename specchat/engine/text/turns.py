"""Messages in the form that a chat template takes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from typing import Any

from specchat.engine.protocol.options import Message
from specchat.engine.text.chat_format import FIELDS, PART, ChatFormat
from specchat.engine.text.sandbox import Assignable
from specchat.engine.tool_calls.giving import as_users, given_calls, given_result, with_users_joined, written_calls


def turns_of(messages: Sequence[Message], form: ChatFormat) -> list[Any]:
    """The messages as a template of this format takes them."""
    return [_turn(message, form) for message in _placed(messages, form)]


def _placed(messages: Sequence[Message], form: ChatFormat) -> list[Message]:
    """The messages in the roles and the order that the template takes.

    Leading system messages become one. A system message that the template does not take where it stands is the user's,
    joined to a message of the user beside it.
    """
    if form.tools is None or form.tools.results == "user":
        messages = as_users(messages)
    leading = list(takewhile(lambda message: message.role == "system", messages))
    system = [reduce(Message.joined, leading)] if leading else [Message("system", "")] * form.headed
    placed: list[Message] = []
    moved = False
    for number, message in enumerate([*system, *messages[len(leading) :]]):
        before, moved = moved, message.role == "system" and not (form.system_later if number else form.system)
        message = replace(message, role="user") if moved else message
        if form.alternating and message.role == "assistant" and (not placed or placed[-1].role == "system"):
            placed.append(Message("user", ""))  # the user begins
        neighbours = bool(placed) and placed[-1].role == message.role and message.role != "tool"
        if neighbours and (before or moved or form.alternating):
            placed[-1], moved = placed[-1].joined(message), False
        else:
            placed.append(message)
    return with_users_joined(placed) if form.tools is not None and form.tools.joined else placed


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
    elif message.pictures:
        turn["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in message.parts
        ]
    elif form.content == "parts":
        turn["content"] = parts
    return Assignable(turn) if form.content == "assignable" else turn
