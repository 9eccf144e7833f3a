"""Requests that get no reply: the status, the body, and the next one is served."""

import json
from contextlib import nullcontext
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Generate
from specchat.serve import guard
from specchat.serve.errors import ApiError
from specchat.serve.guard import AccessCheck
from tests.fake import FakeEngine
from tests.serve.conftest import SOON_S, serving
from tests.service.made import Clock

HI = [{"role": "user", "content": "hi"}]
GOOD = {"model": "demo", "messages": HI}
BAD: list[tuple[Any, str]] = [
    ({"messages": []}, "no message of the user"),
    ({}, "messages: it has to be given"),
    ({**GOOD, "temperature": -1}, "temperature"),
    ({**GOOD, "temperature": "hot"}, "temperature"),
    ({**GOOD, "max_tokens": 0}, "max_tokens"),
    ({**GOOD, "n": 129}, "n: at most 128"),
    ({**GOOD, "functions": [{"name": "look"}]}, "functions is not supported by specchat serve: give them as tools"),
    ({**GOOD, "web_search_options": {}}, "web_search_options is not supported"),
    ({**GOOD, "logit_bias": {"fox": 1}}, "logit_bias.fox: Input"),
    ({**GOOD, "top_logprobs": 3}, "logprobs has to be true"),
    ({**GOOD, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({**GOOD, "tools": [{"type": "function"}]}, "tools"),
    ({**GOOD, "strategy": "magic"}, "no strategy magic"),
    ({**GOOD, "draft_length": 99}, "draft_length"),
    (b'{"messages": [{"role": "user", "content": "4"}], "logit_bias": {"5": NaN}}', "a number that is not finite"),
    (b'{"messages": [], "user": 1e999}', "a number that is not finite"),
    (b'{"messages": [], "metadata": {"a": [1, -Infinity]}}', "a number that is not finite"),
    ({**GOOD, "metadata": json.loads("[" * 201 + "]" * 201)}, "The body is nested more than 200 deep"),
    ({**GOOD, "acceptance": "any"}, "acceptance"),
    ({**GOOD, "stop": ["x"] * 99}, "stop"),
    ({**GOOD, "stop": ["x", 1]}, "stop.1: Input should be a valid string"),
    ({"messages": [{"role": "user", "content": [{"text": "4"}]}]}, "messages.0.content.0.type: it has to be given"),
    ({"messages": [{"role": "critic", "content": "4"}]}, "messages.0.role"),
    ({"messages": [{"role": "tool", "content": "4"}]}, "no message of the user"),
    ({**GOOD, "tools": [{"type": "custom", "custom": {"name": "x"}}]}, "custom"),
    ({**GOOD, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.name"),
    ({**GOOD, "tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]}, "tools.0.parameters"),
    ({**GOOD, "tools": [7]}, "tools.0"),
    ({**GOOD, "tool_choice": "required"}, "no tools"),
    ({**GOOD, "tool_choice": {"type": "function", "function": {"name": "look"}}}, "no tool look"),
    ({**GOOD, "tool_choice": {"type": "custom"}}, "tool_choice"),
    ({**GOOD, "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, "no tools"),
    ({**GOOD, "tool_choice": {"type": "allowed_tools", "tools": True}}, "have to be a list"),
    (
        {**GOOD, "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "function": {"name": "x"}}]}},
        "no tool x",
    ),
    ({"messages": [*HI, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "a"}}]}]}, "results"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
    ([GOOD], "JSON object"),
]


async def post(url: str, body: Any, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=SOON_S) as client:
        if isinstance(body, bytes):
            return await client.post(f"{url}/v1/chat/completions", content=body, headers=headers)
        return await client.post(f"{url}/v1/chat/completions", json=body, headers=headers)


async def test_fields_that_cannot_be_used_are_named(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        for body, words in BAD:
            found = await post(server.url, body)
            error = found.json()["error"]
            assert (found.status_code, error["type"]) == (400, "invalid_request_error"), body
            assert words in error["message"]
        assert (await post(server.url, b"{")).status_code == 400
        assert (await post(server.url, b"[" * 100_000)).status_code == 400
        assert (await post(server.url, b"x" * (33 << 20))).status_code == 413
        assert (await post(server.url, GOOD)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_what_comes_back_in_an_answer_can_be_written(engine: FakeEngine, stream: bool) -> None:
    """No encoding has half a surrogate pair, and no reader of JSON bears any depth."""
    deep = json.loads("[" * 199 + "]" * 199)
    half: dict[str, Any] = {"instructions": "a\ud800", "metadata": {"\udfff": deep}, "guided_regex": "[\ud800a]"}
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        url = f"{server.url}/v1/responses"
        text = (await client.post(url, content=json.dumps({"input": "\ud800", "stream": stream, **half}))).text
        found = json.loads(text.splitlines()[-2][6:])["response"] if stream else json.loads(text)
        assert (found["instructions"], found["metadata"]) == ("a\ufffd", {"\ufffd": deep})
        said = engine.requests[-1]
        assert isinstance(said, Generate)
        assert [message.content for message in said.messages] == ["a\ufffd", "\ufffd"]
        assert said.grammar == Grammar("regex", "[\ufffda]")


async def test_anthropics_errors_have_their_own_shape(engine: FakeEngine) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        found = await client.post(f"{server.url}/v1/messages", json={"messages": HI})
        assert (found.status_code, found.json()["type"]) == (400, "error")
        assert "max_tokens" in found.json()["error"]["message"]
        for path, told in (("chat/completions", True), ("v1/v1/messages", True), ("v1/embeddings", False)):
            elsewhere = await client.post(f"{server.url}/{path}", json=GOOD)
            assert elsewhere.status_code == 404
            words = elsewhere.text
            assert f"There is no /{path} here." in words
            assert ("need a base_url that ends with /v1" in words) == told
        asked = await client.get(f"{server.url}/v1/messages")
        assert (asked.status_code, asked.headers["allow"]) == (405, "POST")
        assert asked.json()["error"]["message"] == "/v1/messages takes POST alone."


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"origin": ""},
    ],
)
async def test_pages_of_other_sites_are_refused(engine: FakeEngine, headers: dict[str, str]) -> None:
    async with serving(engine) as server:
        assert (await post(server.url, GOOD, **headers)).status_code == 403
        assert (await post(server.url, GOOD, origin="http://localhost:3000")).status_code == 200


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_where_others_may_ask_the_machine_has_any_name(host: str, local: bool) -> None:
    there = Request({"type": "http", "client": ("10.0.0.7", 1), "headers": [(b"host", b"box.lan:8642")]})
    with pytest.raises(ApiError, match="name this machine") if local else nullcontext():
        AccessCheck(host).check(there)
    assert guard.client(there) == "10.0.0.7"


async def test_pages_of_this_machine_may_read_answers(engine: FakeEngine) -> None:
    """As web interfaces on another port, whose browser asks before it sends JSON with a key."""
    page = "http://localhost:3000"
    wanted = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        for origin, status in ((page, 200), ("http://localhost.evil.example", 400), ("null", 400)):
            asked = await client.options(f"{server.url}/v1/chat/completions", headers={"origin": origin, **wanted})
            assert asked.status_code == status
            assert (asked.headers.get("access-control-allow-origin") == origin) == (status == 200)
        found = await post(server.url, {}, origin=page)
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (400, page)


async def test_a_key_is_asked_for(engine: FakeEngine) -> None:
    async with serving(engine, key="secret") as server:
        assert (await post(server.url, GOOD)).status_code == 401
        assert (await post(server.url, GOOD, authorization="Bearer wrong")).status_code == 401
        assert (await post(server.url, GOOD, authorization="bearer secret")).status_code == 200
        assert (await post(server.url, GOOD, **{"x-api-key": "secret"})).status_code == 200
        async with httpx2.AsyncClient(timeout=SOON_S) as client:
            assert (await client.get(f"{server.url}/v1/models")).status_code == 401
            assert (await client.get(f"{server.url}/health")).status_code == 200


@pytest.mark.parametrize("sent", ["utf-8", "latin-1"])
async def test_a_key_may_have_any_letters(engine: FakeEngine, sent: str) -> None:
    key = "Schlüssel-1"
    async with serving(engine, key=key) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        for name, value in (("x-api-key", key), ("authorization", f"Bearer {key}")):
            found = await client.get(f"{server.url}/v1/models", headers={name.encode(): value.encode(sent)})
            assert found.status_code == (200 if sent == "utf-8" else 401)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("/home/me/.cache/m x/tokenizer.json: it has no (/a/b).", "m x/tokenizer.json: it has no (b)."),
        ("~/models/m/config.json names 'and/or', http://127.0.0.1/v1 and 1 / 2.",
         "config.json names 'and/or', http://127.0.0.1/v1 and 1 / 2."),
    ],
)  # fmt: skip
async def test_no_answer_tells_where_files_are(engine: FakeEngine, words: str, told: str) -> None:
    engine.fail_reply("model", words)
    async with serving(engine) as server:
        assert (await post(server.url, GOOD)).json()["error"]["message"] == told
        async with httpx2.AsyncClient(timeout=SOON_S) as client:
            page = (await client.get(f"{server.url}/metrics")).text
        assert 'vllm:request_success_total{finished_reason="error",model_name="demo"} 1.0' in page
    engine.fail_load("model", words)
    async with serving(engine, load=False) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        while told not in (found := await client.get(f"{server.url}/health")).text:
            assert found.status_code == 503


async def test_while_it_loads_clients_are_told_to_come_again(engine: FakeEngine) -> None:
    engine.holds_loads = True
    async with serving(engine, load=False) as server:
        found = await post(server.url, GOOD)
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        async with httpx2.AsyncClient(timeout=SOON_S) as client:
            assert (await client.get(f"{server.url}/health")).status_code == 503


async def test_a_pair_that_cannot_be_loaded_says_why(engine: FakeEngine) -> None:
    engine.fail_load("model", "It is broken.\x1b[2J")
    async with serving(engine, load=False) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        while "broken" not in (found := await client.get(f"{server.url}/health")).text:
            assert found.status_code == 503
        assert "\x1b" not in found.text


async def test_a_death_fails_the_request_and_the_next_one_is_served() -> None:
    engine = FakeEngine(("one two three four five six seven eight",), tokens_per_second=2, clock=Clock())
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        body = {**GOOD, "stream": True}
        async with client.stream("POST", f"{server.url}/v1/chat/completions", json=body) as stream:
            lines = stream.aiter_lines()
            assert '"role"' in await anext(lines)
            engine.die()
            rest = "\n".join([line async for line in lines])
        assert "error" in rest
        engine.tokens_per_second = None
        while (found := await post(server.url, GOOD)).status_code == 503:
            pass
        assert found.status_code == 200
