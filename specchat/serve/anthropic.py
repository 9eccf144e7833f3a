"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

import json
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Grammar, Message, ToolCall
from specchat.engine.protocol.stats import Stats
from specchat.serve import sse
from specchat.serve.api_writer import respond
from specchat.serve.call_parts import CallParts, calls_at_end
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, last_asked, system_text, text_of
from specchat.serve.generation import Served
from specchat.serve.lenient import Lenient
from specchat.serve.pictures import asked
from specchat.serve.reasoning import OutputEffort
from specchat.serve.runs import Runs
from specchat.serve.tools import AnthropicChoice, of_anthropic
from specchat.serve.unsupported import refuse_unsupported

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "context": "model_context_window_exceeded"}


class ContentBlock(ContentPart):
    """A block: text, thinking, a call (`tool_use`) or a result (`tool_result`)."""

    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = Field(default_factory=dict)
    tool_use_id: str = ""
    content: str | list[ContentPart] | None = None


class AnthropicMessage(Lenient):
    role: str
    content: str | list[ContentBlock]


class OutputFormat(Lenient):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(OutputEffort):
    """Anthropic's `output_config`."""

    format: OutputFormat | None = None


class MessagesRequest(ReplyFields):
    messages: list[AnthropicMessage]
    system: str | list[ContentPart] | None = None
    max_tokens: int = Field(ge=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: AnthropicChoice | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None

    def grammars(self) -> dict[str, Grammar | str]:
        configured = self.output_config.format if self.output_config else None
        formats = {"output_config.format": configured, "output_format": self.output_format}
        schemas = {name: form.json_schema for name, form in formats.items() if form is not None}
        return super().grammars() | {name: Grammar("json_schema", json.dumps(form)) for name, form in schemas.items()}

    def chat(self, sees: bool = False) -> Chat:
        """The messages, with the system prompt first, and pictures where the model `sees`."""
        use = of_anthropic(self.tools, self.tool_choice)
        system = system_text(self.system, "system")
        messages = [Message("system", system)] if system else []
        last = last_asked([message.role for message in self.messages])
        for number, message in enumerate(self.messages):
            messages += _messages(message, f"messages.{number}", number < last, sees)
        return Chat.of(messages, use)


class CountRequest(MessagesRequest):
    max_tokens: int = 1


def _messages(message: AnthropicMessage, where: str, earlier: bool, sees: bool) -> list[Message]:
    """The engine's messages in one of Anthropic's: results stand apart there."""
    blocks = message.content if isinstance(message.content, list) else [ContentBlock(type="text", text=message.content)]
    where = f"{where}.content"
    if message.role == "user":
        results = [block for block in blocks if block.type == "tool_result"]
        found = [Message("tool", text_of(b.content, where, earlier=True), tool_call_id=b.tool_use_id) for b in results]
        texts = [block for block in blocks if block.type != "tool_result"]
        return [*found, *([asked(texts, where, earlier=earlier, sees=sees)] if texts or not found else [])]
    if message.role == "system":
        return [Message("system", system_text(blocks, where))]
    if message.role != "assistant":
        role = where.replace("content", "role")
        raise ApiError(400, f"{role}: {message.role} is not supported; user, assistant and system are.", role)
    thoughts = "\n".join(block.thinking for block in blocks if block.type == "thinking")
    used = [block for block in blocks if block.type == "tool_use"]
    calls = tuple(ToolCall(b.id, b.name, json.dumps(b.input, ensure_ascii=False)) for b in used)
    texts = [block for block in blocks if block.type not in ("thinking", "redacted_thinking", "tool_use")]
    return [Message("assistant", text_of(texts, where), thoughts, calls)]


async def messages(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    refuse_unsupported(body)
    wanted = MessagesRequest.model_validate(body)
    chat = wanted.chat(served.loaded().sees)
    make = served.request(wanted, chat, grammar=await wanted.checked_grammar())
    writer = MessageWriter(served.pair.id, chat)
    return await respond(request, writer, served.reply(client, make), chat.use, stream=wanted.stream)


async def count_tokens(served: Served, client: str, request: Request, body: Any) -> Response:
    """The tokens of a prompt; raises as `messages` does."""
    del client, request
    refuse_unsupported(body)
    wanted = CountRequest.model_validate(body)
    counted = await served.count(wanted, wanted.chat(served.loaded().sees))
    return JSONResponse({"input_tokens": counted.tokens})


class MessageWriter:
    """Writes a reply of `/v1/messages`."""

    alive: ClassVar[str] = sse.event({"type": "ping"}, "ping")
    media: ClassVar[str] = sse.MEDIA

    def __init__(self, model: str, chat: Chat) -> None:
        self._model = model
        self._chat = chat
        self._calls = CallParts(chat.use)
        self._id = f"msg_{uuid.uuid4().hex}"
        self._runs = Runs()
        self._index, self._open = -1, ""
        """Number and kind of the block that is being written."""

    def begin(self, event: Started) -> str:
        usage = {"input_tokens": event.prompt_tokens - event.reused, "cache_read_input_tokens": event.reused}
        return _event("message_start", message=self._message([], usage, Stats()))

    def step(self, event: Step) -> str:
        return "".join(self._of_step(event))

    def _of_step(self, step: Step) -> Iterator[str]:
        for reasoning, text in self._runs.of(step):
            yield from self._written("thinking" if reasoning else "text", text)
        for part in self._calls.of(step):
            if part.begins:
                yield from self._begin("tool_use", _used(part.id, part.name, {}))
            yield self._delta("input_json_delta", partial_json=part.arguments)

    def end(self, event: Finished) -> str:
        rest = calls_at_end(event, self._chat.use, whole=False)[1]
        parts = [*(self._written("text", rest) if rest else ()), *self._end()]
        last = _event("message_delta", delta=_ended(event), usage=_output(event.stats))
        return "".join([*parts, last, _event("message_stop")])

    def failed(self, error: ApiError) -> str:
        return sse.event(error.anthropic(), "error")

    def body(self, event: Finished) -> dict[str, Any]:
        written = event.written
        blocks: list[dict[str, Any]] = []
        if thoughts := written.thoughts.strip("\n"):
            blocks.append({"type": "thinking", "thinking": thoughts, "signature": ""})
        answer = self._chat.answer(written)
        calls, rest = calls_at_end(event, self._chat.use, whole=True)
        if answer + rest or not calls:
            blocks.append({"type": "text", "text": answer + rest})
        blocks += [_used(call.id, call.name, json.loads(call.arguments)) for call in calls]
        return {**self._message(blocks, _input(event.stats), event.stats), **_ended(event)}

    def _written(self, kind: str, text: str) -> Iterator[str]:
        """The events of a text or of thinking."""
        if kind != self._open:
            signature = {"signature": ""} if kind == "thinking" else {}
            yield from self._begin(kind, {"type": kind, kind: "", **signature})
        yield self._delta(f"{kind}_delta", **{kind: text})

    def _delta(self, kind: str, **fields: str) -> str:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **fields})

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[str]:
        """The events before a block's first delta."""
        yield from self._end()
        self._index, self._open = self._index + 1, kind
        yield _event("content_block_start", index=self._index, content_block=block)

    def _end(self) -> Iterator[str]:
        if self._open == "thinking":
            yield self._delta("signature_delta", signature="")
        if self._open:
            yield _event("content_block_stop", index=self._index)

    def _message(self, content: list[Any], usage: dict[str, int], written: Stats) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, **_output(written)},
        }


def _used(id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call as a block."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def _ended(event: Finished) -> dict[str, str | None]:
    """The reason of a reply's end."""
    reason = STOP_REASONS[event.reason]
    if event.reason == "stop":
        reason = "tool_use" if event.tool_calls else "stop_sequence" if event.stopped_by else reason
    return {"stop_reason": reason, "stop_sequence": event.stopped_by or None}


def _output(stats: Stats) -> dict[str, Any]:
    thought = stats.reasoning_tokens
    details = {} if thought is None else {"output_tokens_details": {"thinking_tokens": thought}}
    return {"output_tokens": stats.completion_tokens, **details}


def _input(stats: Stats) -> dict[str, int]:
    return {
        "input_tokens": stats.prompt_tokens - stats.reused_tokens,
        "cache_read_input_tokens": stats.reused_tokens,
    }


def _event(kind: str, **fields: Any) -> str:
    return sse.event({"type": kind, **fields}, kind)
