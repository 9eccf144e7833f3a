"""OpenAI's `/v1/responses`: its fields, and the chat that they make."""

import json
from base64 import b64decode
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.protocol.options import Grammar, Limits, Message, ToolCall
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, last_asked, system_text, text_of
from specchat.serve.generation import Served
from specchat.serve.kept_responses import KeptResponse
from specchat.serve.lenient import Lenient
from specchat.serve.logprobs import MAX_TOP
from specchat.serve.openai_chat import ROLES
from specchat.serve.pictures import asked
from specchat.serve.response_events import ResponseWriter, item_id
from specchat.serve.tools import full_name, of_responses
from specchat.serve.unsupported import refuse_unsupported

SUMMARY = "Summary of the chat up to here:\n\n"
"""Stands before the summary of a compaction (`compaction.py`)."""
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
    encrypted_content: str = ""
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

    def messages(self, sees: bool) -> list[Message]:
        """The messages of the input alone, with pictures where the model `sees`.

        Raises:
            ApiError: an item is of a type that no template takes.
        """
        if isinstance(self.input, str):
            return [Message("user", self.input)]
        found: list[Message] = []
        last = last_asked([item.role for item in self.input])
        for number, item in enumerate(self.input):
            message = _message(item, f"input.{number}", number < last, sees)
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


def _message(item: InputItem, where: str, earlier: bool, sees: bool) -> Message:
    if item.type == "function_call":
        name = full_name(item.namespace, item.name)
        return Message("assistant", "", tool_calls=(ToolCall(item.call_id, name, item.arguments or "{}"),))
    if item.type == "function_call_output":
        return Message("tool", text_of(item.output, f"{where}.output", earlier=True), tool_call_id=item.call_id)
    if item.type == "compaction":
        return Message("user", SUMMARY + _summary(item.encrypted_content, f"{where}.encrypted_content"))
    if item.type == "reasoning":
        parts = (item.content if isinstance(item.content, list) else None) or item.summary or []
        kinds = ("reasoning_text", "summary_text")
        return Message("assistant", "", "\n".join(part.text for part in parts if part.type in kinds))
    if item.type != "message" or item.role not in ROLES or item.role == "tool":
        what = f"role {item.role}" if item.type == "message" else f"type {item.type}"
        raise ApiError(400, f"{where}: items of {what} are not supported by specchat serve.", where)
    role = ROLES[item.role]
    where = f"{where}.content"
    if role == "system":
        return Message(role, system_text(item.content, where))
    if role == "user":
        return asked(item.content, where, earlier=earlier, sees=sees)
    return Message(role, text_of(item.content, where, earlier=earlier))


def _summary(encoded: str, where: str) -> str:
    """The text of a compaction."""
    try:
        return b64decode(encoded, validate=True).decode()
    except ValueError:
        raise ApiError(400, f"{where}: the summary is not one of specchat serve.", where) from None


async def responses(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients, and its chats are its own.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    body = with_items(served, client, body)
    wanted, said, chat = read(served, client, body)

    def keep(response: dict[str, Any], reply: Message) -> None:
        if wanted.store is not False:
            served.responses.keep(client, KeptResponse((*said, reply), response, _items(body.get("input"))))

    writer = ResponseWriter({**body, "model": served.pair.id}, chat, keep)
    make = served.request(wanted, chat, grammar=await wanted.checked_grammar(), logprobs=wanted.top)
    return await respond(request, writer, served.reply(client, make), chat.use, stream=wanted.stream)


def with_items(served: Served, client: str, body: Any) -> Any:
    """The body of a request, with the items that its references name; raises ApiError if one is not kept."""
    if not isinstance(body, dict) or not isinstance(asked := body.get("input"), list):
        return body
    items = [
        served.responses.item(client, str(item["id"]), f"input.{number}")
        if isinstance(item, dict) and "id" in item and item.get("type") == "item_reference"
        else item
        for number, item in enumerate(asked)
    ]
    return {**body, "input": items}


def read(served: Served, client: str, body: Any, ask: str = "") -> tuple[ResponsesRequest, tuple[Message, ...], Chat]:
    """A request, its messages after those of the response that it goes on from, and the chat with instructions.

    The chat ends with a message of the user if there is one to `ask`.
    """
    refuse_unsupported(body, "background", "conversation", "prompt")
    wanted = ResponsesRequest.model_validate(body)
    previous = wanted.previous_response_id
    before = served.responses.get(client, previous, "previous_response_id").messages if previous else ()
    said = (*before, *wanted.messages(served.loaded().sees))
    system = [Message("system", wanted.instructions)] if wanted.instructions else []
    use = of_responses(wanted.tools, wanted.tool_choice, wanted.parallel_tool_calls)
    last = [Message("user", ask)] if ask else []
    return wanted, said, Chat.of([*system, *said, *last], use)


async def input_tokens(served: Served, client: str, request: Request, body: Any) -> Response:
    """The tokens of a prompt; raises as `responses` does."""
    del request
    wanted, _, chat = read(served, client, with_items(served, client, body))
    counted = await served.count(wanted, chat)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": counted.tokens})


async def kept_response(served: Served, client: str, request: Request) -> Response:
    """A response that is kept, or after DELETE the word that it is not.

    Raises:
        ApiError: it is not kept, or is to come as a stream.
    """
    name = request.path_params["name"]
    if request.method == "DELETE":
        served.responses.delete(client, name)
        return JSONResponse({"id": name, "object": "response", "deleted": True})
    if request.query_params.get("stream") == "true":
        raise ApiError(400, "stream: a response that has ended comes whole. Leave it out.", "stream")
    return JSONResponse(served.responses.get(client, name).body)


async def input_items(served: Served, client: str, request: Request) -> Response:
    """The items of the input that a response answered, the last one first unless `order` is asc."""
    items = served.responses.get(client, request.path_params["name"]).items
    items = items if request.query_params.get("order") == "asc" else items[::-1]
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
    return JSONResponse({"object": "list", "data": items, "has_more": False, **ends})


def _items(asked: Any) -> list[dict[str, Any]]:
    """The items of an input, with ids."""
    found = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return [_item(item) for item in found]


def _item(asked: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "message", "status": "completed", **asked}
    item["id"] = asked.get("id") or item_id(item["type"])
    if isinstance(text := item.get("content"), str):
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        item["content"] = [{"type": kind, "text": text}]
    return item
