"""OpenAI's `/v1/responses`: its fields, and the chat that they make."""

import json
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.options import Grammar, Message, ToolCall
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, text_of
from specchat.serve.generation import Served
from specchat.serve.kept_responses import KeptResponses
from specchat.serve.lenient import Lenient, TokenLimit
from specchat.serve.openai_chat import ROLES
from specchat.serve.response_events import ResponseReply
from specchat.serve.responses import respond
from specchat.serve.tools import of_responses


class InputItem(Lenient):
    """A message, a call (`function_call`), its result (`function_call_output`), or earlier reasoning."""

    type: str = "message"
    role: str = ""
    content: str | list[ContentPart] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[ContentPart] | None = None


class TextFormat(Lenient):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, Any] | bool | None = Field(None, alias="schema")


class TextFields(Lenient):
    format: TextFormat = Field(default_factory=lambda: TextFormat.model_validate({}))


class ResponsesRequest(ReplyFields):
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: TokenLimit = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    text: TextFields | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    def messages(self) -> list[Message]:
        """The messages of the input alone.

        Raises:
            ApiError: an item is of a type that no template takes.
        """
        if isinstance(self.input, str):
            return [Message("user", self.input)]
        found: list[Message] = []
        for number, item in enumerate(self.input):
            message = _message(item, f"input.{number}")
            if found and found[-1].role == message.role == "assistant" and not (found[-1].content and message.content):
                found[-1] = _joined(found[-1], message)
            else:
                found.append(message)
        return found

    def grammars(self) -> dict[str, Grammar | str]:
        """The grammars by the fields that ask for them.

        Raises:
            ApiError: a field lacks its schema, or is not supported.
        """
        found = super().grammars()
        if self.text is None or self.text.format.type == "text":
            return found
        form, field = self.text.format, "text.format"
        if form.type == "json_object":
            return {**found, field: Grammar("json_object")}
        if form.json_schema is None:
            raise ApiError(400, f"{field}.schema is missing.", f"{field}.schema")
        return {**found, field: Grammar("json_schema", json.dumps(form.json_schema))}


def _message(item: InputItem, where: str) -> Message:
    if item.type == "function_call":
        return Message("assistant", "", tool_calls=(ToolCall(item.call_id, item.name, item.arguments or "{}"),))
    if item.type == "function_call_output":
        return Message("tool", text_of(item.output, f"{where}.output"), tool_call_id=item.call_id)
    if item.type == "reasoning":
        parts = item.content if isinstance(item.content, list) else []
        return Message("assistant", "", "\n".join(part.text for part in parts if part.type == "reasoning_text"))
    if item.type != "message" or item.role not in ROLES or item.role == "tool":
        what = f"role {item.role}" if item.type == "message" else f"type {item.type}"
        raise ApiError(400, f"{where}: items of {what} are not supported by specchat serve.", where)
    return Message(ROLES[item.role], text_of(item.content, f"{where}.content"))


def _joined(one: Message, other: Message) -> Message:
    """Two parts of one reply: reasoning, an answer, calls."""
    thoughts = "\n".join(filter(None, (one.reasoning, other.reasoning)))
    return Message("assistant", one.content + other.content, thoughts, one.tool_calls + other.tool_calls)


async def responses(served: Served, kept: KeptResponses, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients, and its chats are its own.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    wanted = ResponsesRequest.model_validate(body)
    for name in ("background", "conversation", "prompt"):
        if getattr(wanted, name):
            raise ApiError(400, f"{name} is not supported by specchat serve. Leave it out.", name)
    wanted.max_tokens = wanted.max_output_tokens or wanted.max_tokens
    before = kept.get(client, wanted.previous_response_id) if wanted.previous_response_id else ()
    said = (*before, *wanted.messages())
    system = [Message("system", wanted.instructions)] if wanted.instructions else []
    use = of_responses(wanted.tools, wanted.tool_choice, wanted.parallel_tool_calls)
    chat = Chat.of([*system, *said], use)

    def keep(response: str, reply: Message) -> None:
        if wanted.store is not False:
            kept.keep(client, response, (*said, reply))

    reply = ResponseReply({**body, "model": served.pair.id}, chat, keep)
    make = served.request(wanted, None, chat, grammar=await wanted.checked_grammar())
    events = served.reply(client, make)
    return await respond(request, reply, events, stream=wanted.stream)
