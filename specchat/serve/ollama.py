"""Ollama's API: chats and prompts, answered as lines of JSON."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Grammar, Message, ToolCall
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.text.template_choices import GRADES, SWITCHES
from specchat.serve.api_writer import respond
from specchat.serve.call_parts import calls_at_end
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat, ContentPart, ReplyFields, last_asked, text_of
from specchat.serve.generation import NO_CHAT, Served
from specchat.serve.lenient import Lenient
from specchat.serve.logprobs import MAX_TOP, ChatLogprobs
from specchat.serve.openai_chat import ROLES
from specchat.serve.pictures import asked
from specchat.serve.runs import Runs
from specchat.serve.tools import of_chat
from specchat.serve.unsupported import refuse_unsupported

VERSION = "0.12.0"
"""The version of Ollama's API that clients are told: some ask for a newer one than they know."""


class OllamaFunction(Lenient):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaCall(Lenient):
    function: OllamaFunction


class OllamaMessage(Lenient):
    role: str
    content: str = ""
    thinking: str = ""
    images: list[Any] = Field(default_factory=list)
    tool_calls: list[OllamaCall] = Field(default_factory=list)
    tool_name: str = ""


class OllamaFields(ReplyFields):
    """Fields of chats and prompts; those in `options` are as if they stood beside them."""

    stream: bool = True
    format: dict[str, Any] | Literal["json", ""] = ""
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] = 0

    @model_validator(mode="before")
    @classmethod
    def _with_options(cls, value: Any) -> Any:
        options = value.get("options") if isinstance(value, dict) else None
        if not isinstance(options, dict):
            return value
        refuse_unsupported(options)
        # Ollama has -1 and -2 for replies without a limit.
        limit = {"num_predict": -1} if options.get("num_predict") == -2 else {}
        return {**value, **options, **limit}

    @model_validator(mode="before")
    @classmethod
    def _thinking(cls, value: Any) -> Any:
        think = value.get("think") if isinstance(value, dict) else None
        if think is None:
            return value
        return {**value, "enable_thinking" if isinstance(think, bool) else "reasoning_effort": think}

    def grammars(self) -> dict[str, Grammar | str]:
        found = super().grammars()
        if self.format:
            json_alone = self.format == "json"
            found["format"] = Grammar("json_object") if json_alone else Grammar("json_schema", json.dumps(self.format))
        return found

    @property
    def top(self) -> int | None:
        """Tokens of each place that are told with their log-probabilities; None for none at all."""
        return self.top_logprobs if self.logprobs else None


class OllamaChat(OllamaFields):
    messages: list[OllamaMessage]
    tools: list[dict[str, Any]] | None = None

    def chat(self, sees: bool) -> Chat:
        """The messages, with pictures where the model `sees`; results belong to the calls before them, in order.

        Raises:
            ApiError: one has a role or a content that no template takes.
        """
        found: list[Message] = []
        open_calls: list[ToolCall] = []
        last = last_asked([message.role for message in self.messages])
        for number, message in enumerate(self.messages):
            if message.role not in ROLES:
                raise ApiError(400, f"messages.{number}.role: {message.role} is not supported.", "messages")
            role, parts = ROLES[message.role], _parts(message.content, message.images)
            where, earlier = f"messages.{number}.images", number < last
            if role == "user":
                found.append(asked(parts, where, earlier=earlier, sees=sees))
                continue
            content = text_of(parts, where, earlier=earlier or role == "tool")
            if role == "tool":
                id = open_calls.pop(0).id if open_calls else ""
                found.append(Message(role, content, tool_call_id=id, tool_name=message.tool_name))
                continue
            functions = [call.function for call in message.tool_calls]
            calls = [
                ToolCall(f"call_{number}_{n}", function.name, json.dumps(function.arguments, ensure_ascii=False))
                for n, function in enumerate(functions)
            ]
            open_calls = list(calls)
            found.append(Message(role, content, message.thinking, tuple(calls)))
        return Chat.of(found, of_chat(self.tools, None, None))


def _parts(text: str, images: list[Any]) -> list[ContentPart]:
    """A text after its pictures, in base64, as a content of parts."""
    pictures = [ContentPart(type="image", source={"type": "base64", "data": data}) for data in images]
    return [*pictures, *([ContentPart(type="text", text=text)] if text else [])]


class OllamaPrompt(OllamaFields):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    images: list[Any] = Field(default_factory=list)


async def chat(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer `/api/chat`; raises as `chat_completions` does."""
    refuse_unsupported(body)
    wanted = OllamaChat.model_validate(body)
    if not wanted.messages:
        return JSONResponse(_loaded(served, "message"))
    said = wanted.chat(served.loaded().sees)
    make = served.request(wanted, said, grammar=await wanted.checked_grammar(), logprobs=wanted.top)
    writer = OllamaWriter(served.pair.id, "message", said)
    return await respond(request, writer, served.reply(client, make), said.use, stream=wanted.stream)


async def generate(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer `/api/generate`; raises as `chat_completions` does."""
    refuse_unsupported(body, "template", "context", has=("suffix",))
    wanted = OllamaPrompt.model_validate(body)
    if wanted.images and (wanted.raw or wanted.suffix):
        raise ApiError(400, "images: a raw prompt, or one with a suffix, takes none. Leave them out.", "images")
    if not wanted.prompt and not wanted.suffix:
        return JSONResponse(_loaded(served, "response"))
    grammar, top = await wanted.checked_grammar(), wanted.top
    if wanted.suffix or wanted.raw:
        raw = FillIn(wanted.prompt, wanted.suffix) if wanted.suffix else wanted.prompt
        make = served.request(wanted, raw=raw, grammar=grammar, logprobs=top)
    else:
        system = [Message("system", wanted.system)] if wanted.system else []
        parts = _parts(wanted.prompt, wanted.images)
        said = Chat.of([*system, asked(parts, "images", earlier=False, sees=served.loaded().sees)])
        make = served.request(wanted, said, grammar=grammar, logprobs=top)
    writer = OllamaWriter(served.pair.id, "response")
    return await respond(request, writer, served.reply(client, make), stream=wanted.stream)


async def show(served: Served, client: str, request: Request, body: Any) -> Response:
    """Facts of the model, as `/api/show` gives them."""
    del client, request, body
    info = served.loaded()
    thinks = any(name in (*SWITCHES, *GRADES) for name, _ in info.template.choices)
    able = {"completion": True, "vision": info.sees, "tools": info.template.tools, "thinking": thinks}
    return JSONResponse(
        {
            "template": "",
            "details": _details(served),
            "model_info": {
                "general.architecture": "specchat",
                "general.parameter_count": info.target.parameters,
                "specchat.context_length": info.context,
            },
            "capabilities": [name for name, has in able.items() if has],
        }
    )


def tags(served: Served) -> dict[str, Any]:
    """The list of models, and of those in memory."""
    memory = served.loaded().load.memory
    one = {"name": served.pair.id, "model": served.pair.id, "modified_at": _time(served.begun), "size": memory}
    more = {"digest": served.pair.id, "details": _details(served), "expires_at": _time(), "size_vram": memory}
    return {"models": [{**one, **more}]}


class OllamaWriter:
    """Writes a reply as lines of JSON; calls come whole."""

    media: ClassVar[str] = "application/x-ndjson"

    def __init__(self, model: str, field: Literal["message", "response"], chat: Chat = NO_CHAT) -> None:
        """`field` holds the text."""
        self._model, self._field, self._chat = model, field, chat
        self._runs, self._logprobs = Runs(), ChatLogprobs()
        self._prompt_ms = 0.0

    @property
    def alive(self) -> str:
        return self._line(self._said(""), done=False)

    def begin(self, event: Started) -> str:
        self._prompt_ms = event.prompt_ms
        return ""

    def step(self, event: Step) -> str:
        self._logprobs.add(event)
        return "".join(self._of_step(event))

    def _of_step(self, event: Step) -> Iterator[str]:
        for reasoning, text in self._runs.of(event):
            yield self._line(self._said("", text) if reasoning else self._said(text), done=False, listed=True)
        if event.tool_calls:
            yield self._line(self._said("", calls=event.tool_calls), done=False)

    def end(self, event: Finished) -> str:
        calls, rest = calls_at_end(event, self._chat.use, whole=True)
        said = self._said(rest, calls=calls[len(event.tool_calls) :])
        return self._line({**said, **self._ended(event)}, done=True, listed=True)

    def failed(self, error: ApiError) -> str:
        return json.dumps(error.ollama()) + "\n"

    def body(self, event: Finished) -> dict[str, Any]:
        written = event.written
        calls, rest = calls_at_end(event, self._chat.use, whole=True)
        said = self._said(self._chat.answer(written) + rest, written.thoughts.strip("\n"), calls)
        return {**self._head(), **said, "done": True, **self._ended(event), **_listed(self._logprobs.whole())}

    def _said(self, text: str, thoughts: str = "", calls: tuple[ToolCall, ...] = ()) -> dict[str, Any]:
        more: dict[str, Any] = {"thinking": thoughts} if thoughts else {}
        if self._field == "response":
            return {"response": text, **more}
        functions = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]
        more |= {"tool_calls": [{"function": function} for function in functions]} if calls else {}
        return {"message": {"role": "assistant", "content": text, **more}}

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": _time()}

    def _line(self, said: dict[str, Any], *, done: bool, listed: bool = False) -> str:
        logprobs = _listed(self._logprobs.take()) if listed else {}
        return json.dumps({**self._head(), **said, "done": done, **logprobs}) + "\n"

    def _ended(self, event: Finished) -> dict[str, Any]:
        stats = event.stats
        read, wrote = int(1e6 * self._prompt_ms), int(1e6 * stats.milliseconds)
        return {
            "done_reason": "stop" if event.reason == "stop" else "length",
            "total_duration": read + wrote,
            "load_duration": 0,
            "prompt_eval_count": stats.prompt_tokens,
            "prompt_eval_duration": read,
            "eval_count": stats.completion_tokens,
            "eval_duration": wrote,
        }


def _listed(logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"logprobs": logprobs["content"]} if logprobs else {}


def _loaded(served: Served, field: str) -> dict[str, Any]:
    """The answer to a request without a prompt, by which clients have a model loaded."""
    served.loaded()
    said = {field: "" if field == "response" else {"role": "assistant", "content": ""}}
    return {"model": served.pair.id, "created_at": _time(), **said, "done": True, "done_reason": "load"}


def _details(served: Served) -> dict[str, Any]:
    parameters = served.loaded().target.parameters
    size = f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
    return {
        "format": "gguf" if served.pair.spec.target.is_gguf else "safetensors",
        "family": "specchat",
        "parameter_size": size,
        "quantization_level": served.pair.spec.target.quant or "",
    }


def _time(seconds: float | None = None) -> str:
    return (datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)).isoformat()


POSTS: Mapping[str, Any] = {"/api/chat": chat, "/api/generate": generate, "/api/show": show}
PAGES: Mapping[str, Callable[[Served], Any]] = {
    "/api/tags": tags,
    "/api/ps": tags,
    "/api/version": lambda _: {"version": VERSION},
}
