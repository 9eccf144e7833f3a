"""Finds the kind of a server and its model."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from specchat.clean import one_line
from specchat.engine.protocol.pair import Server, ServerKind
from specchat.engine.protocol.requests import Count, Generate
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import ServerError
from specchat.remote.json_values import table
from specchat.remote.llamacpp import LlamaCppDialect
from specchat.remote.openai import Dialect, ServerFacts
from specchat.remote.pictures import reads_pictures, with_pictures
from specchat.remote.sglang import SglangDialect
from specchat.remote.specchat import SpecchatDialect
from specchat.remote.triton import TritonDialect, is_triton, triton_models
from specchat.remote.trtllm import TrtLlmDialect
from specchat.remote.vllm import VllmDialect

DIALECTS: Mapping[ServerKind, type[Dialect]] = {
    "openai": Dialect,
    "llama.cpp": LlamaCppDialect,
    "vllm": VllmDialect,
    "sglang": SglangDialect,
    "trtllm": TrtLlmDialect,
    "triton": TritonDialect,
    "specchat": SpecchatDialect,
}
OWNERS: Mapping[str, ServerKind] = {
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "specchat": "specchat",
}
"""Kinds by the owner that their models name."""
METRICS: Mapping[str, ServerKind] = {"\nvllm:": "vllm", "\nsglang:": "sglang"}
"""Kinds by what their pages of metrics hold, for servers that name another owner."""
MAX_MODELS = 10_000


@dataclass(frozen=True)
class Found:
    """A server's kind, the model to use there, and what is known of both."""

    dialect: Dialect
    model: str
    known: ServerFacts

    async def count(self, connection: ServerConnection, request: Count | Generate) -> int | None:
        """Tokens of a prompt; None if the server does not count, or for one with pictures, which are sent once."""
        if with_pictures(request.messages):
            return None
        return await self.dialect.count(connection, self.model, request)


async def find(connection: ServerConnection, server: Server, template: Mapping[str, str | int | bool]) -> Found:
    """Ask a server for its kind and model; `template` are the pair's arguments of the chat template.

    Raises:
        ServerError: it cannot be reached, or does not have the model.
    """
    kind, models = server.kind, await _models(connection, server)
    if models is None:
        kind, models = "triton", await triton_models(connection)
    model = _model(models, server, connection.root)
    kind = kind if kind != "auto" else await _kind(connection, model)
    dialect = DIALECTS[kind](server, template)
    known = await dialect.look(connection, model)
    known = replace(known, sees=await reads_pictures(connection, kind, model))
    return Found(dialect, str(model.get("id", server.model)), known)


async def _models(connection: ServerConnection, server: Server) -> list[Mapping[str, Any]] | None:
    """The models by OpenAI's list; None for Triton, which has none."""
    if server.kind == "triton":
        return None
    try:
        listed = table(await connection.get("/v1/models")).get("data")
    except ServerError as error:
        if error.status == 404 and server.kind == "auto" and await is_triton(connection):
            return None
        if error.status == 404 and server.model:  # a server that serves without a list
            return []
        raise
    found = [table(one) for one in listed[:MAX_MODELS]] if isinstance(listed, list) else []
    return [one for one in found if isinstance(one.get("id"), str)]


def _model(models: list[Mapping[str, Any]], server: Server, root: str) -> Mapping[str, Any]:
    if not models:
        if server.model:
            return {"id": server.model}
        raise ServerError(f"{root} lists no models. Name one as model in models.toml.", "model")
    if not server.model:
        return models[0]
    for model in models:
        if server.model == model["id"] or server.model in (model.get("aliases") or ()):
            return model
    names = [model["id"] for model in models]
    near = get_close_matches(server.model, names, 3, 0.4) or names[:3]
    raise ServerError(
        f'{root} has no model "{server.model}", but {", ".join(one_line(name, 60) for name in near)}.', "model"
    )


async def _kind(connection: ServerConnection, model: Mapping[str, Any]) -> ServerKind:
    if (kind := OWNERS.get(str(model.get("owned_by", "")))) is not None:
        return kind
    with suppress(ServerError):
        if "default_generation_settings" in table(await connection.get("/props")):
            return "llama.cpp"
    with suppress(ServerError):
        page = await connection.text("/metrics")
        return next((kind for mark, kind in METRICS.items() if mark in page), "openai")
    return "openai"
