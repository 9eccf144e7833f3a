"""OpenAI's `/v1/chat/completions`."""

import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Message, Role, ToolCall
from specchat.serve import figures, sse
from specchat.serve.call_parts import CallParts
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, system_text, text_of
from specchat.serve.generation import ReplyEvent, ReplyEvents, Served, each
from specchat.serve.lenient import Lenient
from specchat.serve.logprobs import MAX_TOP, ChatLogprobs
from specchat.serve.responses import respond
from specchat.serve.runs import Runs
from specchat.serve.tools import of_chat
from specchat.serve.unsupported import refuse_unsupported

_NAMES = {True: "reasoning_content", False: "content"}
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class CalledFunction(Lenient):
    name: str
    arguments: str = ""


class CallFields(Lenient):
    """A call of an earlier reply."""

    id: str = ""
    function: CalledFunction


class ChatMessage(Lenient):
    role: str
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallFields] | None = None
    tool_call_id: str = ""
    name: str = ""


class StreamOptions(Lenient):
    include_usage: bool = False


class ChatRequest(ReplyFields):
    messages: list[ChatMessage]
    stream_options: StreamOptions = StreamOptions()
    timings_per_token: bool = False
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    def chat(self) -> Chat:
        """The messages.

        Raises:
            ApiError: a message has a role or a content that no template takes, or a tool cannot be used.
        """
        use = of_chat(self.tools, self.tool_choice, self.parallel_tool_calls)
        return Chat.of([_message(message, f"messages.{number}") for number, message in enumerate(self.messages)], use)

    @property
    def top(self) -> int | None:
        """Tokens of each place that are told with their log-probabilities; None for none at all.

        Raises:
            ApiError: `top_logprobs` without `logprobs`.
        """
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs: logprobs has to be true.", "top_logprobs")
        return self.top_logprobs if self.logprobs else None


def _message(message: ChatMessage, where: str) -> Message:
    if message.role not in ROLES:
        raise ApiError(400, f"{where}.role: {message.role} is not supported; {', '.join(ROLES)} are.", f"{where}.role")
    reasoning = message.reasoning_content or message.reasoning or ""
    role = ROLES[message.role]
    content = (system_text if role == "system" else text_of)(message.content, f"{where}.content")
    if role == "tool":
        return Message(role, content, tool_call_id=message.tool_call_id, tool_name=message.name)
    calls = [ToolCall(c.id, c.function.name, c.function.arguments or "{}") for c in message.tool_calls or ()]
    return Message(role, content, reasoning, tuple(calls) if role == "assistant" else ())


async def chat_completions(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    refuse_unsupported(body)
    wanted = ChatRequest.model_validate(body)
    chat = wanted.chat()
    make = served.request(wanted, chat, grammar=await wanted.checked_grammar(), logprobs=wanted.top)
    reply = ChatReply(wanted, served.pair.id, chat)
    events = served.reply(client, make)
    return await respond(request, reply, events, chat.use, stream=wanted.stream)


class ChatReply:
    """A reply in OpenAI's words."""

    def __init__(self, wanted: ChatRequest, model: str, chat: Chat) -> None:
        self._wanted = wanted
        self._given = len(chat.prefill)
        """Characters that were in the request."""
        self._use = chat.use
        self._calls = CallParts(chat.use)
        self._timings = figures.Timings()
        self._runs = Runs()
        self._logprobs = ChatLogprobs()
        self._head: dict[str, Any] = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    async def whole(self, events: ReplyEvents) -> dict[str, Any]:
        """The whole reply."""
        async for event in each(events):
            self._add(event)
            if isinstance(event, Step):
                list(self._called(event))
            elif isinstance(event, Finished):
                return {
                    **self._head,
                    "object": "chat.completion",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", **self._content(event)},
                            "logprobs": self._logprobs.take(),
                            "finish_reason": finish_reason(event),
                        }
                    ],
                    **self._figures(event),
                }
        raise ApiError(503, "The engine ended.")

    async def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]:
        """The reply as server-sent events, a chunk a verify step; those that come together are sent together."""
        async with aclosing(events):
            try:
                yield self._chunks(first, self._chunk({"role": "assistant", "content": ""}))
                async for some in events:
                    yield self._chunks(some) or sse.ALIVE
            except ApiError as error:
                yield sse.event(error.openai())
        yield sse.DONE

    def _chunks(self, some: list[ReplyEvent], begun: str = "") -> str:
        chunks = [begun]
        for event in some:
            self._add(event)
            if isinstance(event, Finished):
                if event.reason != "stop" and (rest := self._calls.calls(whole=False)[1]):
                    chunks.append(self._chunk({"content": rest}))
                chunks.append(self._chunk({}, finish_reason(event), self._last(event)))
                if self._wanted.stream_options.include_usage:
                    chunks.append(self._event([], self._figures(event)))
            elif isinstance(event, Step):
                timings = {"timings": self._timings.data()} if self._wanted.timings_per_token else {}
                for reasoning, text in self._runs.of(event):
                    chunks.append(self._chunk({_NAMES[reasoning]: text}, None, timings))
                chunks += [self._chunk({"tool_calls": [delta]}, None, timings) for delta in self._called(event)]
        return "".join(chunks)

    def _called(self, event: Step) -> Iterator[dict[str, Any]]:
        """A step's calls as deltas: the name, then arguments in parts."""
        for part in self._calls.of(event):
            if part.begins:
                function = {"name": part.name, "arguments": ""}
                yield {"index": part.number, "id": part.id, "type": "function", "function": function}
            yield {"index": part.number, "function": {"arguments": part.arguments}}

    def _add(self, event: ReplyEvent) -> None:
        self._timings.add(event)
        if isinstance(event, Step):
            self._logprobs.add(event)
        if isinstance(event, Started):
            self._head["seed"] = event.seed

    def _content(self, event: Finished) -> dict[str, Any]:
        written = event.written
        thoughts = written.thoughts.strip("\n")
        content = written.answer[self._given :] if not written.reasoning else written.answer
        calls, rest = self._use.passed_on(written.tool_calls), ""
        if event.reason != "stop":
            calls, rest = self._calls.calls(whole=False)
        content += rest
        found: dict[str, Any] = {"content": content, **({"reasoning_content": thoughts} if thoughts else {})}
        if calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            made = [{"id": c.id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
            found |= {"content": content or None, "tool_calls": made}
        return found

    def _figures(self, event: Finished) -> dict[str, Any]:
        found = {"usage": figures.usage(event.stats), "timings": self._timings.data()}
        return {**found, "metrics": figures.metrics(event)}

    def _last(self, event: Finished) -> dict[str, Any]:
        return {} if self._wanted.stream_options.include_usage else {"timings": self._timings.data()}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, more: dict[str, Any] | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": self._logprobs.take(), "finish_reason": reason}
        return self._event([choice], more or {})

    def _event(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> str:
        return sse.event({**self._head, "object": "chat.completion.chunk", "choices": choices, **more})


def finish_reason(event: Finished) -> Literal["stop", "length", "tool_calls"]:
    if event.reason != "stop":
        return "length"
    return "tool_calls" if event.tool_calls else "stop"
