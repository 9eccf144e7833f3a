"""SGLang: usage by chunk tells the verify steps, `spec_tokens_details` their drafts at the end."""

from collections.abc import Mapping
from typing import Any

from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Generate
from specchat.remote.chunks import ChunkDialect, ChunkReader, counts
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table, whole
from specchat.remote.openai import Chunk, EventReader, ServerFacts, ServerFigures


class SglangReader(ChunkReader):
    def read(self, event: Mapping[str, Any]) -> Chunk:
        chunk = super().read(event)
        details = table(table(event.get("sglext")).get("spec_tokens_details"))
        steps = whole(details.get("spec_verify_ct"))
        if steps:
            self.figures = ServerFigures(
                steps,
                whole(details.get("spec_num_proposed_drafts")) or 0,
                whole(details.get("spec_num_correct_drafts")) or 0,
                counts(details.get("spec_correct_drafts_histogram")),
            )
        return chunk


class SglangDialect(ChunkDialect):
    title: str = "SGLang"
    reader: type[EventReader] = SglangReader

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        context = whole(model.get("max_model_len")) or 0
        try:
            settings = table(await connection.get("/server_info"))
        except ServerError:
            return ServerFacts(context, note="draft tokens are told at the end of a reply")
        if "speculative_algorithm" not in settings:
            return ServerFacts(context, note="draft tokens are told at the end of a reply")
        if not settings["speculative_algorithm"]:
            return ServerFacts(context, drafts=False, note="this server was started without drafting")
        # The target's own token is one of the tokens that it counts as drafted.
        length = (whole(settings.get("speculative_num_draft_tokens")) or 1) - 1
        return ServerFacts(context, True, length, note="steps are told by chunk, draft tokens at the end of a reply")

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        body = {**super().body(request, model), "return_spec_tokens_details": True}
        return body | ({"top_k": body["top_k"] or -1} if "top_k" in body else {})

    def _structured(self, grammar: Grammar) -> dict[str, Any]:
        return {"regex": grammar.text} if grammar.kind == "regex" else super()._structured(grammar)
