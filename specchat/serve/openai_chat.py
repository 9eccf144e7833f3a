"""OpenAI's `/v1/chat/completions`."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.protocol.events import Finished, PromptProgress, Started, Step
from specchat.engine.protocol.options import Message, Role, ToolCall
from specchat.serve import figures, sse
from specchat.serve.api_writer import respond
from specchat.serve.call_parts import CallParts, calls_at_end
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, last_asked, system_text, text_of
from specchat.serve.generation import Served, several
from specchat.serve.lenient import Lenient
from specchat.serve.logprobs import MAX_TOP, ChatLogprobs, LogprobList
from specchat.serve.pictures import asked
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
    return_progress: bool = False
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0
    n: Annotated[int, Field(ge=1)] = 1
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    def chat(self, sees: bool = False) -> Chat:
        """The messages, with pictures where the model `sees`.

        Raises:
            ApiError: a message has a role or a content that no template takes, or a tool cannot be used.
        """
        use = of_chat(self.tools, self.tool_choice, self.parallel_tool_calls)
        last = last_asked([message.role for message in self.messages])
        found = [_message(message, f"messages.{n}", n < last, sees) for n, message in enumerate(self.messages)]
        return Chat.of(found, use)

    @property
    def top(self) -> int | None:
        """Tokens of each place that are told with their log-probabilities; None for none at all.

        Raises:
            ApiError: `top_logprobs` without `logprobs`.
        """
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs: logprobs has to be true.", "top_logprobs")
        return self.top_logprobs if self.logprobs else None


def _message(message: ChatMessage, where: str, earlier: bool, sees: bool) -> Message:
    if message.role not in ROLES:
        raise ApiError(400, f"{where}.role: {message.role} is not supported; {', '.join(ROLES)} are.", f"{where}.role")
    reasoning = message.reasoning_content or message.reasoning or ""
    role = ROLES[message.role]
    where = f"{where}.content"
    if role == "user":
        return asked(message.content, where, earlier=earlier, sees=sees)
    if role == "system":
        content = system_text(message.content, where)
    else:
        content = text_of(message.content, where, earlier=earlier or role == "tool")
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
    refuse_unsupported(body, has=("n",))
    wanted = ChatRequest.model_validate(body)
    chat = wanted.chat(served.loaded().sees)
    make = served.request(wanted, chat, grammar=await wanted.checked_grammar(), logprobs=wanted.top)
    writer = ChatWriter(wanted, served.pair.id, chat)
    events = served.replies(client, several(make, wanted.n), wanted.return_progress)
    return await respond(request, writer, events, chat.use, stream=wanted.stream)


class OpenAIWriter(ABC):
    """The part of OpenAI's replies that chats and plain prompts share."""

    _empty: ClassVar[dict[str, Any]]
    """A choice without text."""
    alive: ClassVar[str] = sse.ALIVE
    media: ClassVar[str] = sse.MEDIA

    def __init__(self, id: str, kinds: tuple[str, str], model: str, options: StreamOptions, n: int) -> None:
        """Write replies as `id`; `kinds` name the whole and its chunks, `n` is the number of replies to a prompt."""
        self._head: dict[str, Any] = {"id": f"{id}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._kinds = kinds
        self._with_usage = options.include_usage
        self._timings = figures.Timings()
        self._n = n
        self._logprobs: LogprobList
        self._choices: list[dict[str, Any]] = []
        """Choices that have ended."""
        self._usage: dict[str, Any] = {}

    @property
    def replies(self) -> int:
        return self._n

    def begin(self, event: Started) -> str:
        self._timings.add(event)
        self._logprobs = self._list()
        self._logprobs.add(event)
        return ""

    def progress(self, event: PromptProgress) -> str:
        return self._event([self._empty], {"prompt_progress": self._timings.progress(event)})

    def end(self, event: Finished) -> str:
        chunk = self._closed(event)
        # Several replies to one prompt count it once.
        repeated = len(self._choices) % self._n
        used = figures.usage(replace(event.stats, prompt_tokens=0, reused_tokens=0) if repeated else event.stats)
        self._usage = figures.added(self._usage, used) if self._usage else used
        self._choices.append(self._choice(event))
        if len(self._choices) < self.replies:
            return chunk
        return chunk + (self._event([], self._figures(event)) if self._with_usage else "") + sse.DONE

    def body(self, event: Finished) -> dict[str, Any]:
        return {**self._head, "object": self._kinds[0], "choices": self._choices, **self._figures(event)}

    @abstractmethod
    def _list(self) -> LogprobList:
        """An empty list for the reply that begins."""

    @abstractmethod
    def _closed(self, event: Finished) -> str:
        """The last chunk of a reply."""

    @abstractmethod
    def _choice(self, event: Finished) -> dict[str, Any]:
        """A whole reply."""

    def failed(self, error: ApiError) -> str:
        return sse.event(error.openai()) + sse.DONE

    def _add(self, event: Step) -> None:
        self._timings.add(event)
        self._logprobs.add(event)

    def _figures(self, event: Finished) -> dict[str, Any]:
        """The figures of all replies; `metrics` are those of a single one."""
        found = {"usage": self._usage, "timings": self._timings.data()}
        return {**found, "metrics": figures.metrics(event) if self.replies == 1 else None}

    def _event(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> str:
        placed = [{"index": len(self._choices), **choice} for choice in choices]
        return sse.event({**self._head, "object": self._kinds[1], "choices": placed, **more})


class ChatWriter(OpenAIWriter):
    """Writes a reply of `/v1/chat/completions`."""

    _empty: ClassVar[dict[str, Any]] = {"delta": {"role": "assistant", "content": None}, "finish_reason": None}

    def __init__(self, wanted: ChatRequest, model: str, chat: Chat) -> None:
        kinds = ("chat.completion", "chat.completion.chunk")
        super().__init__("chatcmpl", kinds, model, wanted.stream_options, wanted.n)
        self._timed = wanted.timings_per_token
        self._chat = chat
        self._calls = CallParts(chat.use)
        self._runs = Runs()

    def begin(self, event: Started) -> str:
        super().begin(event)
        self._calls, self._runs = CallParts(self._chat.use), Runs()
        self._head.setdefault("seed", event.seed)
        return self._chunk({"role": "assistant", "content": ""})

    def step(self, event: Step) -> str:
        self._add(event)
        timings = {"timings": self._timings.data()} if self._timed else {}
        chunks = [self._chunk({_NAMES[reasoning]: text}, None, timings) for reasoning, text in self._runs.of(event)]
        return "".join(chunks + [self._chunk({"tool_calls": [delta]}, None, timings) for delta in self._called(event)])

    def _list(self) -> LogprobList:
        return ChatLogprobs()

    def _closed(self, event: Finished) -> str:
        rest = calls_at_end(event, self._chat.use, whole=False)[1]
        timings = {} if self._with_usage else {"timings": self._timings.data()}
        return (self._chunk({"content": rest}) if rest else "") + self._chunk({}, finish_reason(event), timings)

    def _choice(self, event: Finished) -> dict[str, Any]:
        message = {"role": "assistant", **self._content(event)}
        choice = {"index": len(self._choices), "message": message, "logprobs": self._logprobs.whole()}
        return {**choice, "finish_reason": finish_reason(event)}

    def _called(self, event: Step) -> Iterator[dict[str, Any]]:
        """A step's calls as deltas: the name, then arguments in parts."""
        for part in self._calls.of(event):
            if part.begins:
                function = {"name": part.name, "arguments": ""}
                yield {"index": part.number, "id": part.id, "type": "function", "function": function}
            yield {"index": part.number, "function": {"arguments": part.arguments}}

    def _content(self, event: Finished) -> dict[str, Any]:
        written = event.written
        thoughts = written.thoughts.strip("\n")
        calls, rest = calls_at_end(event, self._chat.use, whole=False)
        content = self._chat.answer(written) + rest
        found: dict[str, Any] = {"content": content, **({"reasoning_content": thoughts} if thoughts else {})}
        if calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            tool_calls = [
                {"id": c.id, "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)
            ]
            found |= {"content": content or None, "tool_calls": tool_calls}
        return found

    def _chunk(self, delta: dict[str, Any], reason: str | None = None, more: dict[str, Any] | None = None) -> str:
        choice = {"delta": delta, "logprobs": self._logprobs.take(), "finish_reason": reason}
        return self._event([choice], more or {})


def finish_reason(event: Finished) -> Literal["stop", "length", "tool_calls"]:
    if event.reason != "stop":
        return "length"
    return "tool_calls" if event.tool_calls else "stop"
