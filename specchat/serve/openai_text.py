"""OpenAI's `/v1/completions`, and `/tokenize` as llama.cpp and vLLM have it: prompts without a chat template."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from specchat.engine.protocol.events import Finished, Step
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.fields import ReplyFields
from specchat.serve.generation import Served
from specchat.serve.lenient import TokenLimit
from specchat.serve.logprobs import MAX_TOP, TextLogprobs
from specchat.serve.openai_chat import ChatMessage, ChatRequest, OpenAIWriter, StreamOptions, finish_reason
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
    grammar = await wanted.checked_grammar()
    make = served.request(wanted, raw=wanted.text, grammar=grammar, logprobs=wanted.logprobs)
    writer = TextWriter(wanted, served.pair.id)
    return await respond(request, writer, served.reply(client, make), stream=wanted.stream)


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


class TextWriter(OpenAIWriter):
    """Writes a reply of `/v1/completions`."""

    def __init__(self, wanted: TextRequest, model: str) -> None:
        super().__init__("cmpl", "text_completion", model, wanted.stream_options, TextLogprobs())

    def step(self, event: Step) -> str:
        self._add(event)
        text = "".join(piece.text for piece in event.pieces)
        return self._event([_choice(text, None, self._logprobs.take())], {})

    def end(self, event: Finished) -> str:
        return self._event([_choice("", finish_reason(event))], {}) + self._last(event)

    def body(self, event: Finished) -> dict[str, Any]:
        choice = _choice(event.text, finish_reason(event), self._logprobs.whole())
        return {**self._head, "object": self._kind, "choices": [choice], **self._figures(event)}


def _choice(text: str, reason: str | None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}
