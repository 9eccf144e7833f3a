"""Requests for structured output, in the forms of OpenAI, vLLM, llama.cpp and Anthropic."""

import json
from typing import Any

import openai
import pytest

from specchat.engine.grammar.source import MAX_CHARACTERS, check
from specchat.engine.protocol.options import Grammar
from specchat.serve.structured import _from_gbnf
from tests.fake import FakeEngine
from tests.serve.conftest import claude, serving
from tests.serve.test_clients import requested
from tests.serve.test_refusals import GOOD, HI, post

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
JSON = Grammar("json_schema", json.dumps(SCHEMA))
GBNF = 'root ::= "yes" | "no" ws\nws ::= [ \\t]*\n'
FORMS: list[tuple[dict[str, Any], Grammar | None]] = [
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, Grammar("json_object")),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}, JSON),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, JSON),
    ({"structured_outputs": {"json": SCHEMA}}, JSON),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, JSON),
    ({"structured_outputs": {"json_object": True}}, Grammar("json_object")),
    ({"structured_outputs": {"regex": "[a-z]+"}}, Grammar("regex", "[a-z]+")),
    ({"structured_outputs": {"choice": ["a", 'b"']}}, Grammar("lark", 'start: "a" | "b\\""')),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, Grammar("lark", 'start: "a"')),
    ({"guided_json": SCHEMA}, JSON),
    ({"guided_regex": "[a-z]+"}, Grammar("regex", "[a-z]+")),
    ({"guided_choice": ["a"]}, Grammar("lark", 'start: "a"')),
    ({"guided_grammar": 'start: "a"'}, Grammar("lark", 'start: "a"')),
    ({"json_schema": SCHEMA}, JSON),
    ({"grammar": ""}, None),
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nope"}}}}, "response_format"),
    ({"response_format": "json"}, "response_format"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
    ({"structured_outputs": {"regex": "(?=a)"}}, "structured_outputs.regex"),
    ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"guided_regex": "a", "json_schema": SCHEMA}, "json_schema"),
    ({"grammar": "root ::= ("}, "grammar"),
    ({"grammar": "start: nope"}, "grammar"),
    ({"guided_regex": "a" * (MAX_CHARACTERS + 1)}, "guided_regex"),
]


async def test_each_form_becomes_the_grammar_that_it_asks_for(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        for fields, grammar in FORMS:
            assert (await post(server.url, {**GOOD, **fields})).status_code == 200
            assert requested(engine).grammar == grammar, fields


async def test_a_grammar_of_llama_cpp_is_turned_into_one_for_the_engine(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        assert (await post(server.url, {**GOOD, "grammar": GBNF})).status_code == 200
    grammar = requested(engine).grammar
    assert grammar is not None
    assert grammar.kind == "lark"
    check(grammar)
    assert '"yes"' in grammar.text


async def test_forms_that_cannot_be_used_are_refused_by_name(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        for fields, name in BAD:
            found = await post(server.url, {**GOOD, **fields})
            error = found.json()["error"]
            assert (found.status_code, error["param"]) == (400, name), (fields, error)
            assert name in error["message"]
    assert not any(hasattr(request, "grammar") for request in engine.requests)


async def test_the_client_packages_ask_for_a_schema(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
        await client.chat.completions.create(model="demo", messages=HI, response_format=form)  # type: ignore[call-overload]
        assert requested(engine).grammar == JSON
        extra = {"structured_outputs": {"regex": "[0-9]+"}}
        await client.completions.create(model="demo", prompt="a", extra_body=extra)
        assert requested(engine).grammar == Grammar("regex", "[0-9]+")
    from anthropic import BadRequestError

    async with serving(engine) as server, claude(server) as other:
        config = {"format": {"type": "json_schema", "schema": SCHEMA}}
        await other.messages.create(model="demo", max_tokens=9, messages=HI, output_config=config)  # type: ignore[arg-type]
        assert requested(engine).grammar == JSON
        config["format"]["schema"] = {"type": "nope"}
        with pytest.raises(BadRequestError, match=r"output_config\.format"):
            await other.messages.create(model="demo", max_tokens=9, messages=HI, output_config=config)  # type: ignore[arg-type]


def test_a_grammar_that_is_too_long_is_not_turned() -> None:
    """It is refused for its length, and turning it would take long."""
    text = "# GBNF\n" + "a" * MAX_CHARACTERS
    assert _from_gbnf(text) == Grammar("lark", text)
