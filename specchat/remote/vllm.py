"""vLLM: a chunk is a verify step, told by its token ids; `metrics` and /metrics count drafts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Count, Generate
from specchat.remote.calls import offered
from specchat.remote.chunks import ChunkDialect, ChunkReader, counts, going_on
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import milliseconds, table, whole
from specchat.remote.openai import Chunk, EventReader, ServerFacts, ServerFigures, chat
from specchat.remote.prometheus import counters, labels
from specchat.remote.structured import structured_outputs

COUNTERS = "vllm:spec_decode_num_"
MIN_STEPS = 16
"""Fewer steps tell little."""
SHARE = 0.7
"""Least share of steps with a draft where each has one; first tokens and dropped ones have none."""
_ACCEPTED_AT = f"{COUNTERS}accepted_tokens_per_pos_total"


class VllmReader(ChunkReader):
    def read(self, event: Mapping[str, Any]) -> Chunk:
        chunk = super().read(event)
        prompt = event.get("prompt_token_ids")
        if isinstance(prompt, list) and self.prompt_tokens is None:
            self.prompt_tokens = len(prompt)
            chunk = replace(chunk, prompt_tokens=len(prompt))
        metrics = table(event.get("metrics"))
        self.decoding_ms = milliseconds(metrics.get("generation_time_ms")) or self.decoding_ms
        counted = table(metrics.get("speculative_decoding"))
        if counted:
            self.figures = ServerFigures(
                whole(counted.get("num_spec_steps")) or 0,
                whole(counted.get("num_draft_tokens")) or 0,
                whole(counted.get("num_accepted_draft_tokens")) or 0,
                counts(counted.get("acceptance_histogram")),
                counts(counted.get("per_step_accepted")),
            )
        return chunk


class VllmDialect(ChunkDialect):
    title: str = "vLLM"
    reader: type[EventReader] = VllmReader

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
        known = counters(page, COUNTERS)
        if not known and "spec_decode" not in page:
            return ServerFacts(context, drafts=False, note="this server was started without drafting")
        if "draft_tokens_total" not in known:
            how = "draft lengths are estimated from accepted drafts: /metrics names its counters otherwise"
            return ServerFacts(context, note=how)
        positions = len(labels(page, _ACCEPTED_AT, "position"))
        how = "accepted tokens are told by step; draft tokens are the server's draft length a step"
        return ServerFacts(context, True, positions, note=how)

    async def totals(self, connection: ServerConnection) -> ServerFigures | None:
        page = await connection.text("/metrics")
        self.always = _always(page)
        found = counters(page, COUNTERS)
        names = ("drafts_total", "draft_tokens_total", "accepted_tokens_total")
        if not all(name in found for name in names):
            return None
        drafts, drafted, accepted = (int(found[name]) for name in names)
        return ServerFigures(drafts, drafted, accepted)

    async def count(self, connection: ServerConnection, model: str, request: Count | Generate) -> int | None:
        beginning = request.prefill if isinstance(request, Count) else request.beginning.text
        body = {"model": model, "messages": chat(request.messages, beginning), **going_on(beginning)}
        body |= self.arguments(request) | offered(request.tools, "auto")
        return whole(table(await connection.post("/tokenize", body)).get("count"))

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        return {**super().body(request, model), "return_token_ids": True}

    def _structured(self, grammar: Grammar) -> dict[str, Any]:
        return structured_outputs(grammar)


def _always(page: str) -> bool:
    """False if the server's counts tell that many of its steps had no draft."""
    found = counters(page, COUNTERS)
    tokens = counters(page, "vllm:generation_tokens_total").get("", 0.0)
    drafts, steps = found.get("drafts_total", 0.0), tokens - found.get("accepted_tokens_total", 0.0)
    return steps < MIN_STEPS or drafts >= SHARE * steps
