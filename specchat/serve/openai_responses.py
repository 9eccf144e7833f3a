"""OpenAI's `/v1/responses`: its fields, and the chat that they make."""

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.protocol.options import Grammar, Limits, Message, ToolCall
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, system_text, text_of
from specchat.serve.generation import Served
from specchat.serve.kept_responses import KeptResponses
from specchat.serve.lenient import Lenient
from specchat.serve.logprobs import MAX_TOP
from specchat.serve.openai_chat import ROLES
from specchat.serve.response_events import ResponseWriter
from specchat.serve.tools import full_name, of_responses
from specchat.serve.unsupported import refuse_unsupported

LOGPROBS = "message.output_text.logprobs"


class InputItem(Lenient):
    """A message, a call (`function_call`), its result (`function_call_output`), or earlier reasoning."""

    type: str = "message"
    role: str = ""
    content: str | list[ContentPart] | None = None
    summary: list[ContentPart] | None = None
    call_id: str = ""
    namespace: str = ""
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
    previous_response_id: str | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    include: list[str] = Field(default_factory=list)
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0
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
                found[-1] = found[-1].joined(message)
            else:
                found.append(message)
        return found

    def limits(self) -> Limits:
        limits = super().limits()
        return replace(limits, context="drop-oldest") if self.truncation == "auto" else limits

    @property
    def top(self) -> int | None:
        """Tokens of each place that are told with their log-probabilities; None for none at all."""
        return self.top_logprobs if self.top_logprobs or LOGPROBS in self.include else None

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
        name = full_name(item.namespace, item.name)
        return Message("assistant", "", tool_calls=(ToolCall(item.call_id, name, item.arguments or "{}"),))
    if item.type == "function_call_output":
        return Message("tool", text_of(item.output, f"{where}.output"), tool_call_id=item.call_id)
    if item.type == "reasoning":
        parts = (item.content if isinstance(item.content, list) else None) or item.summary or []
        kinds = ("reasoning_text", "summary_text")
        return Message("assistant", "", "\n".join(part.text for part in parts if part.type in kinds))
    if item.type != "message" or item.role not in ROLES or item.role == "tool":
        what = f"role {item.role}" if item.type == "message" else f"type {item.type}"
        raise ApiError(400, f"{where}: items of {what} are not supported by specchat serve.", where)
    role = ROLES[item.role]
    return Message(role, (system_text if role == "system" else text_of)(item.content, f"{where}.content"))


async def responses(served: Served, kept: KeptResponses, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients, and its chats are its own.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    refuse_unsupported(body, "background", "conversation", "prompt")
    wanted = ResponsesRequest.model_validate(body)
    before = kept.get(client, wanted.previous_response_id) if wanted.previous_response_id else ()
    said = (*before, *wanted.messages())
    system = [Message("system", wanted.instructions)] if wanted.instructions else []
    use = of_responses(wanted.tools, wanted.tool_choice, wanted.parallel_tool_calls)
    chat = Chat.of([*system, *said], use)

    def keep(response: str, reply: Message) -> None:
        if wanted.store is not False:
            kept.keep(client, response, (*said, reply))

    writer = ResponseWriter({**body, "model": served.pair.id}, chat, keep)
    make = served.request(wanted, chat, grammar=await wanted.checked_grammar(), logprobs=wanted.top)
    return await respond(request, writer, served.reply(client, make), use, stream=wanted.stream)
