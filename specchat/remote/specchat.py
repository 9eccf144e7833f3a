"""`specchat serve` elsewhere: `timings` as llama.cpp's server has them, counts as vLLM."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.strategies import in_group
from specchat.remote.calls import offered
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table, whole
from specchat.remote.llamacpp import LlamaEventReader
from specchat.remote.openai import OUR_NAMES, Dialect, EventReader, ServerFacts, chat
from specchat.remote.structured import structured_outputs


class SpecchatDialect(Dialect):
    title: str = "specchat serve"
    options: Mapping[str, str] = OUR_NAMES
    continues: bool = True
    takes_template: bool = True
    keeps_text: bool = True
    reader: type[EventReader] = LlamaEventReader

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.undrafted = {"strategy": next(in_group("plain"))}

    async def look(self, connection: ServerConnection, model: Mapping[str, Any]) -> ServerFacts:
        note = "draft tokens and accepted ones are the server's own counts"
        return ServerFacts(whole(model.get("max_model_len")) or await _context(connection), note=note)

    async def count(self, connection: ServerConnection, model: str, request: Count | Generate) -> int | None:
        beginning = request.prefill if isinstance(request, Count) else request.beginning.text
        body = {"model": model, "messages": chat(request.messages, beginning), **self.arguments(request)}
        body |= offered(request.tools, "auto")
        return whole(table(await connection.post("/tokenize", body)).get("count"))

    def body(self, request: Generate, model: str) -> dict[str, Any]:
        return {**super().body(request, model), "timings_per_token": True}

    def _structured(self, grammar: Grammar) -> dict[str, Any]:
        return structured_outputs(grammar)


async def _context(connection: ServerConnection) -> int:
    """The context that a server tells once its pair is loaded, which this waits for; 0 if that takes too long."""
    with suppress(ServerError):
        await connection.get("/health")
        models = table(await connection.get("/v1/models")).get("data")
        return whole(table(models[0]).get("max_model_len")) or 0 if isinstance(models, list) and models else 0
    return 0
