"""Fields by which servers hold a reply to a grammar: OpenAI's for JSON, vLLM's for all kinds."""

import json
from typing import Any

from specchat.engine.protocol.options import Grammar, GrammarKind
from specchat.remote.errors import ServerError

_IN_WORDS: dict[GrammarKind, str] = {"regex": "regular expressions", "lark": "Lark grammars"}
_VLLM: dict[GrammarKind, str] = {"regex": "regex", "lark": "grammar"}


def response_format(grammar: Grammar, server: str) -> dict[str, Any]:
    """OpenAI's `response_format`.

    Raises:
        ServerError: the grammar is none of JSON, for which `server` has no field.
    """
    if grammar.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if grammar.kind == "json_schema":
        schema = {"name": "answer", "strict": True, "schema": _schema(grammar)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    raise ServerError(f"{server} takes JSON schemas, but no {_IN_WORDS[grammar.kind]}.", "request")


def structured_outputs(grammar: Grammar) -> dict[str, Any]:
    """vLLM's `structured_outputs`."""
    if grammar.kind == "json_object":
        return {"structured_outputs": {"json_object": True}}
    if grammar.kind == "json_schema":
        return {"structured_outputs": {"json": _schema(grammar)}}
    return {"structured_outputs": {_VLLM[grammar.kind]: grammar.text}}


def _schema(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.text)
    except (ValueError, RecursionError):
        raise ServerError("The JSON schema cannot be used: it is no JSON.", "request") from None
