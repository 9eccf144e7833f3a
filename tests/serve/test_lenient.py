"""Fields as clients of many kinds write them: nulls, and numbers that stand for none."""

from typing import Any

import httpx2
import openai
import pytest

from specchat.engine.protocol.requests import Generate
from tests.fake import FakeEngine
from tests.serve.conftest import serving

HI = {"role": "user", "content": "hi", "name": None, "tool_call_id": None, "tool_calls": None}
DECODING = dict.fromkeys(("model", "stream", "seed", "temperature", "top_k", "response_format", "chat_template_kwargs"))
CHAT = dict.fromkeys(("n", "logprobs", "top_logprobs", "stream_options", "tools", "tool_choice", "max_tokens", "stop"))
TEXT = dict.fromkeys(("n", "best_of", "echo", "suffix", "logprobs", "max_tokens", "stop", "stream_options"))


def requested(engine: FakeEngine) -> Generate:
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": [HI], **CHAT}),
        ("completions", {"prompt": "hi", **TEXT}),
        ("responses", {"input": [{**HI, "type": None}], "text": {"format": None}, "tools": None}),
        ("messages", {"messages": [HI], "max_tokens": 5, "stop_sequences": None, "system": None, "tools": None}),
    ],
)
async def test_a_field_that_is_null_is_as_if_it_were_missing(
    engine: FakeEngine, path: str, body: dict[str, Any]
) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(base_url=f"{server.url}/v1/") as client:
        found = await client.post(path, json={**DECODING, **body})
    assert found.status_code == 200, found.text
    limit = {"completions": 16, "messages": 5}.get(path)
    assert requested(engine).limits.max_tokens == limit


async def test_minus_one_stands_for_no_limit_and_for_all_tokens(engine: FakeEngine) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(base_url=f"{server.url}/v1/") as client:
        for path, said in (("chat/completions", {"messages": [HI]}), ("completions", {"prompt": "hi"})):
            found = await client.post(path, json={**said, "max_tokens": -1, "top_k": -1})
            assert found.status_code == 200, found.text
            assert (requested(engine).limits.max_tokens, requested(engine).sampling.top_k) == (None, 0)
            assert (await client.post(path, json={**said, "max_tokens": -2})).status_code == 400


async def test_arguments_that_the_template_does_not_know_are_left_out(engine: FakeEngine) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(base_url=f"{server.url}/v1/") as client:
        body = {"messages": [HI], "chat_template_kwargs": {"thinking_budget": 5, "tags": ["a"]}}
        assert (await client.post("chat/completions", json=body)).status_code == 200
    assert requested(engine).template == ()


async def test_the_model_is_found_by_its_name_alone(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        assert (await client.models.retrieve("demo")).id == "demo"
        with pytest.raises(openai.NotFoundError, match="demo is served"):
            await client.models.retrieve("gpt-9")
