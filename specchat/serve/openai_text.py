"""OpenAI's `/v1/completions`, and `/tokenize` as llama.cpp and vLLM have it: prompts without a chat template."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.protocol.events import Finished, Step
from specchat.serve import figures, sse
from specchat.serve.errors import ApiError
from specchat.serve.fields import ReplyFields
from specchat.serve.generation import ReplyEvent, ReplyEvents, Served, each
from specchat.serve.lenient import TokenLimit
from specchat.serve.logprobs import MAX_TOP, TextLogprobs
from specchat.serve.openai_chat import ChatMessage, ChatRequest, StreamOptions, finish_reason
from specchat.serve.responses import respond
from specchat.serve.unsupported import refuse_unsupported

USUAL_TOKENS = 16
"""Tokens of a completion that does not say how many, as OpenAI has it."""


class TextRequest(ReplyFields):
    prompt: str | list[str]
    max_tokens: TokenLimit = USUAL_TOKENS
    stream_options: StreamOptions = StreamOptions()
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] | None = None

    @property
    def text(self) -> str:
        """The only prompt.

        Raises:
            ApiError: there is none or several.
        """
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if len(prompts) != 1 or not prompts[0]:
            raise ApiError(400, "prompt: one text has to be given.", "prompt")
        return prompts[0]


class TokenizeRequest(ReplyFields):
    content: str = ""
    prompt: str = ""
    messages: list[ChatMessage] | None = None


async def completions(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    refuse_unsupported(body)
    wanted = TextRequest.model_validate(body)
    reply = TextReply(wanted, served.pair.id)
    grammar = await wanted.checked_grammar()
    make = served.request(wanted, raw=wanted.text, grammar=grammar, logprobs=wanted.logprobs)
    events = served.reply(client, make)
    return await respond(request, reply, events, stream=wanted.stream)


async def tokenize(served: Served, client: str, request: Request, body: Any) -> Response:
    """The tokens of a text (`content`, `prompt`) or of a chat (`messages`); raises as `completions` does."""
    del client, request
    wanted = TokenizeRequest.model_validate(body)
    text = wanted.content or wanted.prompt
    if wanted.messages is not None:
        counted = await served.count(wanted, ChatRequest(messages=wanted.messages).chat())
    elif text:
        counted = await served.count(wanted, raw=text)
    else:
        return JSONResponse({"tokens": [], "count": 0, "max_model_len": served.loaded().context})
    found = {"tokens": counted.token_ids, "count": counted.tokens, "max_model_len": counted.context}
    return JSONResponse(found)


class TextReply:
    """A completion in OpenAI's words."""

    def __init__(self, wanted: TextRequest, model: str) -> None:
        self._wanted = wanted
        self._timings = figures.Timings()
        self._logprobs = TextLogprobs()
        self._head: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    async def whole(self, events: ReplyEvents) -> dict[str, Any]:
        """The whole reply."""
        async for event in each(events):
            self._timings.add(event)
            if isinstance(event, Step):
                self._logprobs.add(event)
            if isinstance(event, Finished):
                choice = _choice(event.text, finish_reason(event), self._logprobs.take())
                return {**self._head, "choices": [choice], **self._figures(event)}
        raise ApiError(503, "The engine ended.")

    async def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]:
        """The reply as server-sent events, a chunk a verify step; those that come together are sent together."""
        async with aclosing(events):
            try:
                yield self._chunks(first) or sse.ALIVE
                async for some in events:
                    yield self._chunks(some) or sse.ALIVE
            except ApiError as error:
                yield sse.event(error.openai())
        yield sse.DONE

    def _chunks(self, some: list[ReplyEvent]) -> str:
        chunks = []
        for event in some:
            self._timings.add(event)
            if isinstance(event, Step):
                self._logprobs.add(event)
                text = "".join(piece.text for piece in event.pieces)
                chunks.append(self._event([_choice(text, None, self._logprobs.take())]))
            elif isinstance(event, Finished):
                chunks.append(self._event([_choice("", finish_reason(event))]))
                if self._wanted.stream_options.include_usage:
                    chunks.append(self._event([], self._figures(event)))
        return "".join(chunks)

    def _figures(self, event: Finished) -> dict[str, Any]:
        found = {"usage": figures.usage(event.stats), "timings": self._timings.data()}
        return {**found, "metrics": figures.metrics(event)}

    def _event(self, choices: list[dict[str, Any]], more: dict[str, Any] | None = None) -> str:
        return sse.event({**self._head, "choices": choices, **(more or {})})


def _choice(text: str, reason: str | None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}
