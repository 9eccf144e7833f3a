"""llama.cpp's server: `timings` of each token tell the verify steps exactly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.requests import Count, Generate
from specchat.remote.calls import offered
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import milliseconds, table, whole
from specchat.remote.openai import Chunk, Dialect, EventReader, ServerFacts, ServerFigures, chat
from specchat.remote.prometheus import counters

SEEDS = 2**32 - 1
"""Seeds that give the same text again; a larger one counts as one of them."""


class LlamaEventReader(EventReader):
    """Tokens of a verify step share `draft_n` and `predicted_ms`."""

    _draft = (0, 0)

    def read(self, event: Mapping[str, Any]) -> Chunk:
        chunk = super().read(event)
        timings = table(event.get("timings"))
        if not timings:
            return replace(chunk, drafted=self._draft[0], accepted=self._draft[1])
        cached, new = whole(timings.get("cache_n")), whole(timings.get("prompt_n"))
        if cached is not None and new is not None:
            self.prompt_tokens, self.reused = cached + new, cached
        self._tokens = whole(timings.get("predicted_n"), self._tokens) or 0
        drafted, accepted = whole(timings.get("draft_n")), whole(timings.get("draft_n_accepted"))
        self._draft = (drafted or self._draft[0], accepted or self._draft[1])
        self.counts_tokens = self.counts_tokens or bool(chunk.text or chunk.reasoning)
        # An older build tells the sums alone, at the end.
        if not self.counts_tokens and drafted and accepted is not None:
            steps = max(1, self._tokens - accepted)
            self.figures = ServerFigures(steps, drafted, accepted, all_steps=steps)
        return replace(
            chunk,
            tokens=self._tokens,
            drafted=self._draft[0],
            accepted=self._draft[1],
            ms=milliseconds(timings.get("predicted_ms")),
            prompt_tokens=self.prompt_tokens,
            reused=self.reused,
        )


class LlamaCppDialect(Dialect):
    title: str = "llama.cpp's server"
    options: Mapping[str, str] = {
        "top_k": "top_k",
        "min_p": "min_p",
        "repetition_penalty": "repeat_penalty",
    }
    continues: bool = True
    takes_template: bool = True
    keeps_text: bool = True
    reader: type[EventReader] = LlamaEventReader
    _context = 0

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        props = table(await connection.get("/props"))
        settings, meta = table(props.get("default_generation_settings")), table(model.get("meta"))
        drafts = await _drafts(connection)
        self._context = whole(settings.get("n_ctx"), whole(meta.get("n_ctx"))) or self._context
        how = "draft tokens and accepted ones are the server's own counts"
        return ServerFacts(
            context=self._context,
            drafts=drafts,
            parameters=whole(meta.get("n_params")) or 0,
            note="this server was started without drafting" if drafts is False else how,
        )

    async def count(self, connection: ServerConnection, model: str, request: Count | Generate) -> int | None:
        beginning = request.prefill if isinstance(request, Count) else request.beginning.text
        body = {"messages": chat(request.messages, beginning), **self.arguments(request)}
        body |= offered(request.tools, "auto")
        prompt = table(await connection.post("/apply-template", body)).get("prompt")
        if not isinstance(prompt, str):
            return None
        said = await connection.post("/tokenize", {"content": prompt, "add_special": False, "parse_special": True})
        tokens = table(said).get("tokens")
        return len(tokens) if isinstance(tokens, list) else None

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        own = {"timings_per_token": True, "cache_prompt": not request.cold}
        return {**super().body(request, model), **own}

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        """Its penalties look at the last 64 tokens unless told otherwise, and its last seed stands for a random one."""
        own = {"repeat_last_n": self._context, "seed": sampling.seed % SEEDS}
        return {**super()._sampling(sampling), **own}


async def _drafts(connection: ServerConnection) -> bool | None:
    """True if the server drafts; None if neither of the pages that tell it is on."""
    try:
        slots = await connection.get("/slots")
        return any(table(slot).get("speculative") is True for slot in slots) if isinstance(slots, list) else None
    except ServerError:
        pass
    try:
        drafts = counters(await connection.text("/metrics"), "llamacpp:spec_decode_num_drafts_total")
    except ServerError:
        return None
    return True if sum(drafts.values()) else None
