"""The fields of OpenAI's API that all servers have; a kind of server adds its own in a file of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from specchat.engine.protocol.options import Grammar, Message, Sampling
from specchat.engine.protocol.pair import Server
from specchat.engine.protocol.requests import Count, Generate
from specchat.remote.calls import CallPieces, as_message, offered
from specchat.remote.connection import ServerConnection
from specchat.remote.content import read_content
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table, valid_text, whole
from specchat.remote.structured import response_format


@dataclass(frozen=True)
class ServerFacts:
    """Facts about a server and its model.

    Attributes:
        context: the model's context in tokens; 0 if unknown.
        drafts: True if the server drafts, None if unknown.
        draft_length: draft tokens of a step; 0 if unknown.
        always: False if some steps have no draft, as with n-grams, which do not always find one.
        parameters: of the target; 0 if unknown.
        thinks: True if prompts end inside reasoning.
        sees: True if the model reads pictures, None if the server does not say.
        note: what is known of its drafting, in words.
    """

    context: int = 0
    drafts: bool | None = None
    draft_length: int = 0
    always: bool = True
    parameters: int = 0
    thinks: bool = False
    sees: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Chunk:
    """A part of a stream. All numbers are totals of the reply so far.

    Attributes:
        tokens: tokens of the reply.
        ms: the server's own time of writing them; None if unknown.
        reused: prompt tokens that were in the server's cache.
        ends: the server's word for the end of the reply; empty before.
        calling: True if it has a part of a tool call.
        unread: the type of a content that is no text.
    """

    text: str = ""
    reasoning: str = ""
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    ms: float | None = None
    prompt_tokens: int | None = None
    reused: int = 0
    ends: str = ""
    calling: bool = False
    unread: str = ""


@dataclass(frozen=True)
class ServerFigures:
    """A server's counts of a reply, from its end.

    Attributes:
        steps: verify steps with a draft.
        histogram: [j] steps that accepted j draft tokens; empty if unknown.
        per_step: accepted tokens of each step with a draft; empty if unknown.
        all_steps: verify steps with or without a draft; 0 if unknown.
    """

    steps: int
    drafted: int
    accepted: int
    histogram: tuple[int, ...] = ()
    per_step: tuple[int, ...] = ()
    all_steps: int = 0


class EventReader:
    """Reads the events of one reply."""

    def __init__(self, known: ServerFacts) -> None:
        self.known = known
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        """The server's counts at the end."""
        self.reused = 0
        self.figures: ServerFigures | None = None
        self.counts_tokens = False
        """True if a chunk tells the server's own count of the tokens so far."""
        self.decoding_ms: float | None = None
        """The server's own time from the first token to the last; None if it does not tell."""
        self.calls = CallPieces()
        self._tokens = 0

    def read(self, event: Mapping[str, Any]) -> Chunk:
        """The content of an event. Fields of unexpected types count as absent."""
        choice = _first(event.get("choices"))
        delta = table(choice.get("delta"))
        reasoning = {"type": "reasoning", "text": delta.get("reasoning") or delta.get("reasoning_content") or ""}
        content = read_content([reasoning, delta.get("content"), delta.get("refusal")])
        if usage := table(event.get("usage")):
            self.prompt_tokens = whole(usage.get("prompt_tokens"), self.prompt_tokens)
            self.completion_tokens = whole(usage.get("completion_tokens"), self.completion_tokens)
            details = table(usage.get("prompt_tokens_details"))
            self.reused = whole(details.get("cached_tokens"), self.reused) or 0
        calling = self.calls.add(delta.get("tool_calls"))
        self._tokens = self._count(event, choice, bool(content.text or content.reasoning or calling))
        return Chunk(
            content.text,
            content.reasoning,
            self._tokens,
            prompt_tokens=self.prompt_tokens,
            reused=self.reused,
            ends=valid_text(choice.get("finish_reason")),
            calling=calling,
            unread=content.unread,
        )

    def _count(self, event: Mapping[str, Any], choice: Mapping[str, Any], wrote: bool) -> int:
        """Tokens of the reply so far: without a better source one a chunk."""
        return self._tokens + wrote


OUR_NAMES = {name: name for name in ("top_k", "min_p", "repetition_penalty")}
"""The further sampling options of servers that name them as specchat does, vLLM first of all."""


class Dialect:
    """A kind of server: the fields of its requests and replies."""

    title: str = "a server with OpenAI's API"
    options: Mapping[str, str] = {}
    """Its names of the sampling options that OpenAI's API lacks."""
    continues: bool = False
    """True if it goes on from a last assistant message."""
    takes_template: bool = False
    """True if it takes arguments of the chat template."""
    takes_tools: bool = True
    keeps_text: bool = False
    """True if sampled text with a seed is the same with and without drafting."""
    undrafted: Mapping[str, Any] = {}
    """Fields that turn drafting off for a request; empty if there are none."""
    ends_with_body: bool = False
    """True if nothing but the end of the stream ends a reply."""
    reader: type[EventReader] = EventReader

    def __init__(self, server: Server, template: Mapping[str, str | int | bool] = MappingProxyType({})) -> None:
        """`template` are the pair's arguments of the chat template."""
        self._server = server
        self._template = template
        self.always = True
        """`ServerFacts.always` by the last `totals`."""
        self.answered_as = ""
        """The name of another model that replies came from, once it was said."""
        self.longest = 0
        """The longest draft in `totals`."""

    def path(self, model: str) -> str:
        """The page that writes replies."""
        del model
        return "/v1/chat/completions"

    def arguments(self, request: Count | Generate) -> dict[str, Any]:
        """The field with the arguments of the chat template: the request's before the pair's."""
        given = {**self._template, **dict(request.template)}
        return {"chat_template_kwargs": given} if given and self.takes_template else {}

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        """Find facts about a server and its `model`, an entry of its list."""
        return ServerFacts(whole(model.get("max_model_len")) or 0, note="this server does not tell how it drafts")

    async def totals(self, connection: ServerConnection) -> ServerFigures | None:
        """Counts of all replies since the server's start; None if it has none, or tells each reply's."""
        return None

    async def totals_before(self, connection: ServerConnection) -> ServerFigures | None:
        """The same before a reply."""
        return await self.totals(connection)

    async def count(self, connection: ServerConnection, model: str, request: Count | Generate) -> int | None:
        """Tokens of a prompt; None if the server does not count."""
        return None

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        """The body of a request for a reply.

        Raises:
            ServerError: it asks for something that this kind of server does not have.
        """
        beginning = request.beginning
        self._refuse(request)
        body: dict[str, Any] = {
            "messages": chat(request.messages, beginning.text),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._sampling(request.sampling),
        }
        if model:
            body["model"] = model
        if request.limits.max_tokens is not None:
            body["max_tokens"] = request.limits.max_tokens
        if request.limits.ignore_eos:
            body["ignore_eos"] = True
        if request.limits.stop:
            body["stop"] = list(request.limits.stop)
        held = {} if request.grammar is None else self._structured(request.grammar)
        return body | self.arguments(request) | offered(request.tools, request.tool_choice) | held

    def _structured(self, grammar: Grammar) -> dict[str, Any]:
        """The fields that hold a reply to a grammar; raises ServerError where there are none."""
        return response_format(grammar, self._here)

    def _refuse(self, request: Generate) -> None:
        beginning = request.beginning
        if request.logprobs is not None:
            raise ServerError("Log-probabilities of a server elsewhere are not passed on. Ask that server.", "request")
        if beginning.text and not self.continues:
            raise ServerError(f"{self._here} cannot go on from a reply's beginning. Send without one.", "request")
        if beginning.reasoning:
            raise ServerError(f"{self._here} cannot go on from reasoning. Make the reply again instead.", "request")

    @property
    def _here(self) -> str:
        return self.title[0].upper() + self.title[1:]

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        """All options of sampling but those that are the server's."""
        fields: dict[str, Any] = {
            "seed": sampling.seed,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
        }
        if sampling.logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
        usual = Sampling()
        for name in ("top_k", "min_p", "repetition_penalty"):
            if name in self.options:
                fields[self.options[name]] = getattr(sampling, name)
            elif getattr(sampling, name) != getattr(usual, name):
                raise ServerError(f"{self._here} has no {name}: set it to {getattr(usual, name):g}.", "request")
        unset = {self.options.get(name, name) for name in sampling.unset}
        return {name: value for name, value in fields.items() if name not in unset}


def chat(messages: Sequence[Message], beginning: str) -> list[dict[str, Any]]:
    """The messages as the API has them, with the beginning of the reply last."""
    found = [as_message(message) for message in messages]
    return [*found, {"role": "assistant", "content": beginning}] if beginning else found


def _first(value: Any) -> Mapping[str, Any]:
    return table(value[0]) if isinstance(value, list) and value else {}
