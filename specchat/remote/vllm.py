"""vLLM: a chunk is a verify step, told by its token ids; `metrics` and /metrics count drafts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from specchat.engine.requests import Count, Generate
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.openai import Chunk, Dialect, EventReader, ServerFacts, ServerFigures, chat, table, whole
from specchat.remote.prometheus import counters, labels

COUNTERS = "vllm:spec_decode_num_"
MIN_STEPS = 16
"""Fewer steps tell little."""
SHARE = 0.7
"""Least share of steps with a draft where each has one; first tokens and dropped ones have none."""
_ACCEPTED_AT = f"{COUNTERS}accepted_tokens_per_pos_total"


class ChunkReader(EventReader):
    """A chunk of several tokens is a step that accepted all but one; the first step follows the prompt undrafted.

    Draft tokens are the server's draft length a step, or the longest accepted draft where that is unknown. A step of
    one token had a draft if all steps have one; else the server's counts tell at the end.
    """

    _steps = 0
    _draft = (0, 0)
    _longest = 0

    def read(self, event: Mapping[str, Any]) -> Chunk:
        before = self._tokens
        chunk = super().read(event)
        emitted = chunk.tokens - before
        if emitted > 0:
            self._steps += 1
            self._longest = max(self._longest, self.known.draft_length, emitted - 1)
            if self._steps > 1 and self.known.drafts is not False and (emitted > 1 or self.known.always):
                drafted, accepted = self._draft
                self._draft = (drafted + self._longest, accepted + emitted - 1)
        return replace(chunk, drafted=self._draft[0], accepted=self._draft[1])

    def _count(self, event: Mapping[str, Any], choice: Mapping[str, Any], text: str) -> int:
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            return self._tokens + len(ids)
        if event.get("usage") is not None and self.completion_tokens is not None:
            return max(self._tokens, self.completion_tokens)
        return super()._count(event, choice, text)


class VllmReader(ChunkReader):
    def read(self, event: Mapping[str, Any]) -> Chunk:
        chunk = super().read(event)
        prompt = event.get("prompt_token_ids")
        if isinstance(prompt, list) and self.prompt_tokens is None:
            self.prompt_tokens = len(prompt)
            chunk = replace(chunk, prompt_tokens=len(prompt))
        counted = table(table(event.get("metrics")).get("speculative_decoding"))
        if counted:
            self.figures = ServerFigures(
                whole(counted.get("num_spec_steps")) or 0,
                whole(counted.get("num_draft_tokens")) or 0,
                whole(counted.get("num_accepted_draft_tokens")) or 0,
                counts(counted.get("acceptance_histogram")),
                counts(counted.get("per_step_accepted")),
            )
        return chunk


class VllmDialect(Dialect):
    title: ClassVar[str] = "vLLM"
    options: ClassVar[Mapping[str, str]] = {
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
    }
    continues: ClassVar[bool] = True
    takes_template: ClassVar[bool] = True
    reader: ClassVar[type[EventReader]] = VllmReader

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        context = whole(model.get("max_model_len")) or 0
        try:
            page = await connection.text("/metrics")
        except ServerError:
            return ServerFacts(
                context, note="draft lengths are estimated from accepted drafts: /metrics cannot be read"
            )
        if "vllm:" not in page:
            return ServerFacts(
                context, note="draft lengths are estimated from accepted drafts: /metrics has none of vLLM's"
            )
        if not counters(page, COUNTERS):
            return ServerFacts(context, drafts=False, note="this server was started without drafting")
        positions = len(labels(page, _ACCEPTED_AT, "position"))
        how = "accepted tokens are told by step; draft tokens are the server's draft length a step"
        return ServerFacts(context, True, positions, note=how)

    async def totals(self, connection: ServerConnection) -> ServerFigures | None:
        page = await connection.text("/metrics")
        self.always = _always(page)
        found = counters(page, COUNTERS)
        names = ("drafts_total", "draft_tokens_total", "accepted_tokens_total")
        drafts, drafted, accepted = (int(found.get(name, 0)) for name in names)
        return ServerFigures(drafts, drafted, accepted)

    async def count(self, connection: ServerConnection, model: str, request: Count | Generate) -> int | None:
        beginning = request.prefill if isinstance(request, Count) else request.beginning.text
        body = {"model": model, "messages": chat(request.messages, beginning), **going_on(beginning)}
        body |= self.arguments(request)
        return whole(table(await connection.post("/tokenize", body)).get("count"))

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        body = {**super().body(request, model), **going_on(request.beginning.text), "return_token_ids": True}
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return body


def _always(page: str) -> bool:
    """False if the server's counts tell that many of its steps had no draft."""
    found = counters(page, COUNTERS)
    tokens = counters(page, "vllm:generation_tokens_total").get("", 0.0)
    drafts, steps = found.get("drafts_total", 0.0), tokens - found.get("accepted_tokens_total", 0.0)
    return steps < MIN_STEPS or drafts >= SHARE * steps


def going_on(beginning: str) -> dict[str, bool]:
    """The fields that let a server go on from the last message instead of beginning an answer to it."""
    return {"continue_final_message": True, "add_generation_prompt": False} if beginning else {}


def counts(value: Any) -> tuple[int, ...]:
    """A list of counts; empty where it is none."""
    found = [whole(one) for one in value] if isinstance(value, list) else []
    return tuple(one for one in found if one is not None) if None not in found else ()
