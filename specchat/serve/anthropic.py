"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.events import Finished, Started, Stats, Step
from specchat.engine.options import Grammar, Message
from specchat.serve import sse
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, Fields, ReplyFields, text_of
from specchat.serve.generation import ReplyEvent, ReplyEvents, Served, each
from specchat.serve.responses import respond
from specchat.serve.runs import Runs

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "context": "model_context_window_exceeded"}


class ContentBlock(ContentPart):
    thinking: str = ""


class AnthropicMessage(Fields):
    role: str
    content: str | list[ContentBlock]


class OutputFormat(Fields):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """Anthropic's `output_config`, of which the format counts."""

    format: OutputFormat | None = None


class MessagesRequest(ReplyFields):
    messages: list[AnthropicMessage]
    system: str | list[ContentPart] | None = None
    max_tokens: int = Field(ge=1)
    stop_sequences: list[str] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    output_config: OutputConfig | None = None

    def grammars(self) -> dict[str, Grammar | str]:
        config = self.output_config
        if config is None or config.format is None:
            return super().grammars()
        field = "output_config.format"
        return {**super().grammars(), field: Grammar("json_schema", json.dumps(config.format.json_schema))}

    def chat(self) -> Chat:
        """The messages, with the system prompt first."""
        if self.tools:
            raise ApiError(400, "tools is not supported by specchat serve yet. Leave it out.", "tools")
        system = text_of(self.system, "system")
        first = [Message("system", system)] if system else []
        return Chat.of([*first, *(_message(each, f"messages.{n}") for n, each in enumerate(self.messages))])


class CountRequest(MessagesRequest):
    max_tokens: int = 1


def _message(message: AnthropicMessage, where: str) -> Message:
    if message.role == "user":
        return Message("user", text_of(message.content, f"{where}.content"))
    if message.role != "assistant":
        raise ApiError(400, f"{where}.role: {message.role} is not supported; user and assistant are.", f"{where}.role")
    blocks = message.content if isinstance(message.content, list) else [ContentBlock(type="text", text=message.content)]
    thoughts = "\n".join(block.thinking for block in blocks if block.type == "thinking")
    texts: list[ContentPart] = [block for block in blocks if block.type not in ("thinking", "redacted_thinking")]
    return Message("assistant", text_of(texts, f"{where}.content"), thoughts)


async def messages(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    wanted = MessagesRequest.model_validate(body)
    chat = wanted.chat()
    reply = MessageReply(served.pair.id, len(chat.prefill))
    make = served.request(wanted, wanted.stop_sequences, chat, grammar=await wanted.checked_grammar())
    events = served.reply(client, make)
    return await respond(request, reply, events, stream=wanted.stream)


async def count_tokens(served: Served, body: Any) -> Response:
    """The tokens of a prompt; raises as `messages` does."""
    wanted = CountRequest.model_validate(body)
    counted = await served.count(wanted, wanted.chat())
    return JSONResponse({"input_tokens": counted.tokens})


class MessageReply:
    """A reply in Anthropic's words."""

    def __init__(self, model: str, given: int) -> None:
        """The first `given` characters were in the request."""
        self._model = model
        self._given = given
        self._id = f"msg_{uuid.uuid4().hex}"
        self._runs = Runs()
        self._index, self._open = -1, ""
        """Number and kind of the block that is being written."""

    async def whole(self, events: ReplyEvents) -> dict[str, Any]:
        """The whole reply."""
        async for event in each(events):
            if isinstance(event, Finished):
                written = event.written
                thoughts = written.thoughts.strip("\n")
                blocks = [{"type": "thinking", "thinking": thoughts, "signature": ""}] if thoughts else []
                answer = written.answer if written.reasoning else written.answer[self._given :]
                text = {"type": "text", "text": answer}
                stats = event.stats
                return self._message(
                    [*blocks, text], STOP_REASONS[event.reason], _input(stats), stats.completion_tokens
                )
        raise ApiError(503, "The engine ended.")

    async def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]:
        """The reply as server-sent events; those that come together are sent together."""
        known = next((event for event in first if isinstance(event, Started)), None)
        given = {"input_tokens": known.prompt_tokens - known.reused if known else 0}
        given["cache_read_input_tokens"] = known.reused if known else 0
        async with aclosing(events):
            try:
                start = _event("message_start", message=self._message([], None, given, 0))
                yield start + "".join(part for event in first for part in self._parts(event))
                async for some in events:
                    yield "".join(part for event in some for part in self._parts(event))
            except ApiError as error:
                yield sse.event(error.anthropic(), "error")

    def _parts(self, event: ReplyEvent) -> Iterator[str]:
        """The server-sent events of an event."""
        if isinstance(event, Step):
            for reasoning, text in self._runs.of(event):
                kind = "thinking" if reasoning else "text"
                if kind != self._open:
                    if self._open:
                        yield _event("content_block_stop", index=self._index)
                    self._index, self._open = self._index + 1, kind
                    yield _event("content_block_start", index=self._index, content_block={"type": kind, kind: ""})
                delta = {"type": f"{kind}_delta", kind: text}
                yield _event("content_block_delta", index=self._index, delta=delta)
        elif isinstance(event, Finished):
            if self._open:
                yield _event("content_block_stop", index=self._index)
            ended = {"stop_reason": STOP_REASONS[event.reason], "stop_sequence": None}
            yield _event("message_delta", delta=ended, usage={"output_tokens": event.stats.completion_tokens})
            yield _event("message_stop")

    def _message(self, content: list[Any], reason: str | None, given: dict[str, int], written: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {**given, "output_tokens": written},
        }


def _input(stats: Stats) -> dict[str, int]:
    return {
        "input_tokens": stats.prompt_tokens - stats.reused_tokens,
        "cache_read_input_tokens": stats.reused_tokens,
    }


def _event(kind: str, **fields: Any) -> str:
    return sse.event({"type": kind, **fields}, kind)
