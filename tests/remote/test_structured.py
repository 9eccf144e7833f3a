"""How each kind of server is asked to hold a reply to a grammar, or by what words it is said that it cannot."""

import json
from typing import Any

import pytest

from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.pair import ServerKind
from specchat.engine.protocol.requests import Generate
from specchat.remote.errors import ServerError
from specchat.remote.kinds import DIALECTS
from tests.remote.conftest import QUESTION

SCHEMA = {"type": "object"}
JSON, ANY = Grammar("json_schema", json.dumps(SCHEMA)), Grammar("json_object")
REGEX, LARK = Grammar("regex", "[0-9]+"), Grammar("lark", 'start: "a"')
OPENAI = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


def sent(kind: ServerKind, grammar: Grammar) -> dict[str, Any]:
    """The fields for a grammar."""
    dialect = DIALECTS[kind]({})
    free = dialect.body(Generate(1, QUESTION), "m")
    held = dialect.body(Generate(1, QUESTION, grammar=grammar), "m")
    return {name: value for name, value in held.items() if name not in free}


@pytest.mark.parametrize("kind", ["openai", "llama.cpp", "sglang", "trtllm"])
def test_json_goes_in_openais_field(kind: ServerKind) -> None:
    assert sent(kind, JSON) == {"response_format": OPENAI}
    assert sent(kind, ANY) == {"response_format": {"type": "json_object"}}
    with pytest.raises(ServerError, match=r"takes JSON schemas, but no Lark grammars\.$"):
        sent(kind, LARK)


@pytest.mark.parametrize("kind", ["vllm", "specchat"])
def test_all_kinds_go_in_vllms_field(kind: ServerKind) -> None:
    expected = {JSON: {"json": SCHEMA}, ANY: {"json_object": True}, REGEX: {"regex": "[0-9]+"}}
    for grammar, fields in {**expected, LARK: {"grammar": LARK.text}}.items():
        assert sent(kind, grammar) == {"structured_outputs": fields}


def test_sglang_takes_regular_expressions() -> None:
    assert sent("sglang", REGEX) == {"regex": "[0-9]+"}


def test_a_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(ServerError, match="it is no JSON"):
        sent("openai", Grammar("json_schema", "{"))
