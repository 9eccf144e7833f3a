"""Endpoints of llama.cpp's server, such as editors use to fill in code."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import reduce
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat import __version__
from specchat.engine.protocol.events import Finished, PromptProgress, Started, Step
from specchat.engine.protocol.raw_prompt import FillIn, RawPrompt
from specchat.engine.protocol.stats import Stats
from specchat.serve import figures, sse
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.fields import ReplyFields
from specchat.serve.generation import ReplyEvents, Served, several
from specchat.serve.lenient import Lenient, ReadLimit, Tokens
from specchat.serve.openai_chat import ChatRequest
from specchat.serve.queue import RUNNING
from specchat.serve.unsupported import refuse_unsupported


class NativeRequest(ReplyFields):
    """Fields of `/completion` and `/infill`; a prompt is a text or its tokens."""

    prompt: str | Tokens = ""
    max_tokens: ReadLimit = None
    return_tokens: bool = False
    timings_per_token: bool = False
    return_progress: bool = False
    t_max_predict_ms: Annotated[float, Field(gt=0)] | None = None
    response_fields: list[str] = Field(default_factory=list)
    n_cmpl: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="before")
    @classmethod
    def _without_limits(cls, value: Any) -> Any:
        """Leave out a time that is none: llama.cpp has 0 and -1 for that."""
        return {n: v for n, v in value.items() if n != "t_max_predict_ms" or v not in (0, -1)}

    def raw(self) -> RawPrompt:
        """The prompt.

        Raises:
            ApiError: there is none.
        """
        if not self.prompt:
            raise ApiError(400, "prompt: a text or its tokens have to be given.", "prompt")
        return self.prompt if isinstance(self.prompt, str) else tuple(self.prompt)


class OtherFile(Lenient):
    filename: str = "tmp"
    text: str = ""


class InfillRequest(NativeRequest):
    """A place to fill in: `prompt` comes after the prefix."""

    prompt: str = ""
    input_prefix: str
    input_suffix: str
    input_extra: list[OtherFile] = Field(default_factory=list)

    def raw(self) -> RawPrompt:
        files = tuple((file.filename, file.text) for file in self.input_extra)
        wanted = FillIn(self.input_prefix + self.prompt, self.input_suffix, files)
        if not wanted:
            raise ApiError(400, "input_prefix, input_suffix or input_extra has to have a text.", "input_prefix")
        return wanted


class TokenizeRequest(ChatRequest):
    """Fields of `/tokenize`: llama.cpp's `content`, vLLM's `prompt` and `messages`."""

    content: str = ""
    prompt: str = ""
    messages: list[Any] = Field(default_factory=list)


class DetokenizeRequest(Lenient):
    tokens: Tokens


async def completion(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer `/completion`; raises as `chat_completions` does."""
    return await _answer(served, client, request, body, NativeRequest)


async def infill(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer `/infill`; raises as `chat_completions` does."""
    return await _answer(served, client, request, body, InfillRequest)


async def _answer(served: Served, client: str, request: Request, body: Any, kind: type[NativeRequest]) -> Response:
    refuse_unsupported(body)
    wanted = kind.model_validate(body)
    if wanted.stream and wanted.return_tokens:
        raise ApiError(400, "return_tokens: tokens are told of whole replies alone, without stream.", "return_tokens")
    if wanted.stream and wanted.n_cmpl > 1:
        raise ApiError(400, "n_cmpl: several replies come whole alone, without stream.", "n_cmpl")
    make = served.request(wanted, raw=wanted.raw(), grammar=await wanted.checked_grammar())
    writer = NativeWriter(wanted, served.pair.id)
    events = served.replies(client, several(make, wanted.n_cmpl, "n_cmpl"), wanted.return_progress)
    if wanted.t_max_predict_ms is not None:
        events = limited(events, wanted.t_max_predict_ms)
    return await respond(request, writer, events, stream=wanted.stream)


async def limited(events: ReplyEvents, milliseconds: float, clock: Callable[[], float] = time.monotonic) -> ReplyEvents:
    """The events of replies that end after so long, as editors want it: the first once it has a whole line.

    Further ones are left out that have not ended by then.
    """
    written, ends, ended = "", math.inf, False
    async with aclosing(events):
        async for some in events:
            late = clock() > ends
            if ended and late:
                return
            yield some
            for event in some:
                if isinstance(event, Started):
                    ends = min(ends, clock() + milliseconds / 1e3)
                elif isinstance(event, Step):
                    written += _text(event)
                ended = ended or isinstance(event, Finished)
            if late and "\n" in written and not ended:
                yield [Finished(0, "length", written, (), Stats())]
                return


def _field(answer: Any, name: str) -> Any:
    return answer.get(name) if isinstance(answer, dict) else None


def _text(step: Step) -> str:
    return "".join(piece.text for piece in step.pieces)


async def tokenize(served: Served, client: str, request: Request, body: Any) -> Response:
    """The tokens of a text or of a chat; raises as `chat_completions` does."""
    del client, request
    refuse_unsupported(body, "with_pieces", "return_token_strs")
    wanted = TokenizeRequest.model_validate(body)
    if body.get("messages") is not None:
        chat = ChatRequest.model_validate(body)
        counted = await served.count(chat, chat.chat())
    elif text := wanted.content or wanted.prompt:
        counted = await served.count(wanted, raw=text)
    else:
        return JSONResponse({"tokens": [], "count": 0, "max_model_len": served.loaded().context})
    return JSONResponse({"tokens": counted.token_ids, "count": counted.tokens, "max_model_len": counted.context})


async def detokenize(served: Served, client: str, request: Request, body: Any) -> Response:
    """The text of tokens, as llama.cpp (`content`) and vLLM (`prompt`) name it."""
    del client, request
    tokens = tuple(DetokenizeRequest.model_validate(body).tokens)
    text = (await served.count(ReplyFields(), raw=tokens)).text if tokens else ""
    return JSONResponse({"content": text, "prompt": text})


async def apply_template(served: Served, client: str, request: Request, body: Any) -> Response:
    """The prompt that a chat becomes."""
    del client, request
    wanted = ChatRequest.model_validate(body)
    return JSONResponse({"prompt": (await served.count(wanted, wanted.chat(served.loaded().sees))).text})


def props(served: Served) -> dict[str, Any]:
    """Properties of the server."""
    info = served.loaded()
    sampling = served.usual.sampling
    params = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "n_predict": -1}
    return {
        "default_generation_settings": {"params": {**params, "min_p": sampling.min_p}, "n_ctx": info.context},
        "total_slots": RUNNING,
        "model_alias": served.pair.id,
        "model_path": served.pair.id,
        "modalities": {"vision": info.sees, "audio": False, "video": False},
        "chat_template_caps": {
            "supports_tools": info.template.tools,
            "supports_tool_calls": info.template.tools,
            "supports_system_role": info.template.system_role,
        },
        "build_info": f"specchat-{__version__}",
    }


def slots(served: Served) -> list[dict[str, Any]]:
    """Slots, one for each request that may run at once."""
    one = {"n_ctx": served.loaded().context, "speculative": served.usual.speculation.strategy != "plain"}
    return [{"id": n, **one, "is_processing": n < served.queue.running} for n in range(RUNNING)]


class NativeWriter:
    """Writes a reply of `/completion` or `/infill`."""

    alive: ClassVar[str] = sse.ALIVE
    media: ClassVar[str] = sse.MEDIA

    def __init__(self, wanted: NativeRequest, model: str) -> None:
        self._wanted, self._model = wanted, model
        self._ended: list[dict[str, Any]] = []
        self._timings = figures.Timings()
        self._prompt = 0
        """Tokens of the prompt."""

    def progress(self, event: PromptProgress) -> str:
        return sse.event({**self._part(""), "stop": False, "prompt_progress": self._timings.progress(event)})

    def begin(self, event: Started) -> str:
        self._timings = figures.Timings()
        self._timings.add(event)
        self._prompt = event.prompt_tokens
        return ""

    def step(self, event: Step) -> str:
        self._timings.add(event)
        timings = {"timings": self._timings.data()} if self._wanted.timings_per_token else {}
        return sse.event({**self._part(_text(event)), "stop": False, **timings})

    def end(self, event: Finished) -> str:
        tokens = {"tokens": event.token_ids} if self._wanted.return_tokens else {}
        self._ended.append(self._wished({**self._last(event.text, event), **tokens}))
        return sse.event(self._wished(self._last("", event)))

    def failed(self, error: ApiError) -> str:
        return sse.event(error.openai())

    def body(self, event: Finished) -> dict[str, Any] | list[dict[str, Any]]:
        del event
        return self._ended if self._wanted.n_cmpl > 1 else self._ended[0]

    def _wished(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The wished fields of an answer, by their paths; all of it if none are named."""
        paths = self._wanted.response_fields
        found = {path: reduce(_field, path.split("/"), answer) for path in paths}
        return {path: value for path, value in found.items() if value is not None} if paths else answer

    def _part(self, text: str) -> dict[str, Any]:
        counted = {"tokens_predicted": self._timings.predicted, "tokens_evaluated": self._prompt}
        return {"index": len(self._ended), "content": text, "tokens": [], "id_slot": 0, **counted}

    def _last(self, text: str, event: Finished) -> dict[str, Any]:
        kind = "limit" if event.reason != "stop" else "word" if event.stopped_by else "eos"
        return {
            **self._part(text),
            "stop": True,
            "model": self._model,
            "prompt": self._wanted.prompt,
            "has_new_line": "\n" in event.text,
            "truncated": False,
            "stop_type": kind,
            "stopping_word": event.stopped_by,
            "tokens_cached": self._prompt + len(event.token_ids),
            "timings": self._timings.data(),
        }


POSTS: Mapping[str, Any] = {
    "/completion": completion,
    "/completions": completion,
    "/infill": infill,
    "/tokenize": tokenize,
    "/detokenize": detokenize,
    "/apply-template": apply_template,
}
PAGES: Mapping[str, Any] = {"/props": props, "/slots": slots}
