"""OpenAI's `/v1/completions`: prompts without a chat template."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.raw_prompt import FillIn, RawPrompt, text_of
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.fields import ReplyFields
from specchat.serve.generation import MAX_REPLIES, Served, several
from specchat.serve.lenient import ReadLimit, Tokens
from specchat.serve.logprobs import MAX_TOP, TextLogprobs
from specchat.serve.openai_chat import OpenAIWriter, StreamOptions, finish_reason
from specchat.serve.unsupported import refuse_unsupported

USUAL_TOKENS = 16
"""Tokens of a completion that does not say how many, as OpenAI has it."""


class TextRequest(ReplyFields):
    """A prompt is a text or its tokens; several make a list. `suffix` has the model fill in what is between."""

    prompt: str | Tokens | list[str] | list[Tokens]
    suffix: str = ""
    echo: bool = False
    n: Annotated[int, Field(ge=1)] = 1
    max_tokens: ReadLimit = USUAL_TOKENS
    stream_options: StreamOptions = StreamOptions()
    return_progress: bool = False
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP)] | None = None

    def prompts(self) -> list[RawPrompt]:
        """The prompts.

        Raises:
            ApiError: one is empty, they are too many, or they cannot be had with a suffix.
        """
        one = isinstance(self.prompt, str) or bool(self.prompt and isinstance(self.prompt[0], int))
        found: list[Any] = [self.prompt] if one else list(self.prompt)
        if not found or not all(found):
            raise ApiError(400, "prompt: a text or its tokens have to be given.", "prompt")
        if len(found) * self.n > MAX_REPLIES:
            raise ApiError(400, f"prompt: at most {MAX_REPLIES} replies can be asked for at once.", "prompt")
        if not self.suffix:
            return [text if isinstance(text, str) else tuple(text) for text in found]
        if self.echo or not all(isinstance(text, str) for text in found):
            raise ApiError(400, "suffix: the prompt has to be a text, without echo.", "suffix")
        return [FillIn(text, self.suffix) for text in found]


async def completions(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; `client` is for fairness between clients.

    Raises:
        ApiError: it cannot be answered.
        ValidationError: its fields cannot be used.
    """
    refuse_unsupported(body, has=("n", "echo", "suffix"))
    wanted = TextRequest.model_validate(body)
    grammar, top, prompts = await wanted.checked_grammar(), wanted.logprobs, wanted.prompts()
    scored = wanted.echo and top is not None
    makes = [served.request(wanted, raw=raw, grammar=grammar, logprobs=top, scored=scored) for raw in prompts]
    texts = [""] * len(prompts)
    if wanted.echo or top is not None:
        texts = [text_of(raw) or (await served.count(wanted, raw=raw)).text for raw in prompts]
    writer = TextWriter(wanted, served.pair.id, texts)
    every = [each for make in makes for each in several(make, wanted.n)]
    events = served.replies(client, every, wanted.return_progress)
    return await respond(request, writer, events, stream=wanted.stream)


class TextWriter(OpenAIWriter):
    """Writes replies of `/v1/completions`."""

    _empty: ClassVar[dict[str, Any]] = {"text": "", "finish_reason": None}

    def __init__(self, wanted: TextRequest, model: str, prompts: Sequence[str]) -> None:
        """Write the replies to `prompts`, whose texts count where they are repeated or tokens have their places."""
        kinds = ("text_completion", "text_completion")
        super().__init__("cmpl", kinds, model, wanted.stream_options, wanted.n)
        self._prompts, self._echoes = prompts, wanted.echo

    @property
    def replies(self) -> int:
        return self._n * len(self._prompts)

    def begin(self, event: Started) -> str:
        super().begin(event)
        return self._event([_choice(self._echo, None, self._logprobs.take())], {}) if self._echoes else ""

    def step(self, event: Step) -> str:
        self._add(event)
        text = "".join(piece.text for piece in event.pieces)
        return self._event([_choice(text, None, self._logprobs.take())], {})

    @property
    def _prompt(self) -> str:
        return self._prompts[len(self._choices) // self._n]

    @property
    def _echo(self) -> str:
        """The prompt if the reply repeats it."""
        return self._prompt if self._echoes else ""

    def _list(self) -> TextLogprobs:
        return TextLogprobs(self._prompt)

    def _closed(self, event: Finished) -> str:
        return self._event([_choice("", finish_reason(event))], {})

    def _choice(self, event: Finished) -> dict[str, Any]:
        choice = _choice(self._echo + event.text, finish_reason(event), self._logprobs.whole())
        return {"index": len(self._choices), **choice}


def _choice(text: str, reason: str | None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"text": text, "logprobs": logprobs, "finish_reason": reason}
