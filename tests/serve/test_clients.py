"""The client packages of OpenAI and Anthropic against the server."""

import openai
import pytest

from specchat.engine.protocol.options import Message, Written
from specchat.engine.protocol.requests import Generate
from specchat.serve.fields import Chat
from tests.fake import FakeEngine
from tests.serve.conftest import claude, serving

TEXT = "Once there was a fox who kept a lamp."
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "A story?"}]}]


def requested(engine: FakeEngine) -> Generate:
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


async def test_openai_answers_whole(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        assert [model.id async for model in client.models.list()] == ["demo"]
        found = await client.chat.completions.create(
            model="demo", messages=ASK, seed=7, temperature=0.5, stop=["fin"], max_completion_tokens=60,
            extra_body={"strategy": "lookup", "draft_length": 3, "top_k": 5},
        )  # fmt: skip
    request = requested(engine)
    assert request.messages == (Message("system", "Be brief."), Message("user", "A story?"))
    assert (request.sampling.seed, request.sampling.temperature, request.sampling.top_k) == (7, 0.5, 5)
    assert (request.limits.stop, request.limits.max_tokens, request.limits.context) == (("fin",), 60, "refuse")
    assert (request.speculation.strategy, request.speculation.draft_length) == ("lookup", 3)
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == (TEXT, "stop")
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens > 0
    details = found.usage.completion_tokens_details
    speculative = found.model_extra["metrics"]["speculative_decoding"]
    assert details.accepted_prediction_tokens == speculative["num_accepted_draft_tokens"] > 0
    assert found.model_extra["timings"]["draft_n_accepted"] == details.accepted_prediction_tokens


async def test_openai_streams_a_chunk_a_step(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        stream = await client.chat.completions.create(
            model="demo", messages=ASK, stream=True, stream_options={"include_usage": True},
            extra_body={"timings_per_token": True},
        )  # fmt: skip
        chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(text or "" for text in texts) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == chunks[-1].model_extra["timings"]["predicted_n"]
    drafted = [c.model_extra["timings"].get("draft_n", 0) for c in chunks[:-1] if "timings" in (c.model_extra or {})]
    assert drafted == sorted(drafted)
    assert drafted[-1] > 0


async def test_openai_completes_a_raw_text(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        found = await client.completions.create(model="demo", prompt="Once", seed=3, stop="fin")
        request = requested(engine)
        assert (request.raw, request.messages, request.limits.max_tokens) == ("Once", (), 16)
        assert (found.choices[0].text, found.choices[0].finish_reason) == (TEXT, "stop")
        stream = await client.completions.create(model="demo", prompt=["Once"], stream=True, max_tokens=50)
        assert "".join([chunk.choices[0].text async for chunk in stream if chunk.choices]) == TEXT
        for wrong in ([], "", [[]], ["a", ""], [-1], ["a"] * 129):
            with pytest.raises(openai.BadRequestError, match="prompt"):
                await client.completions.create(model="demo", prompt=wrong)


async def test_openai_gets_reasoning_apart() -> None:
    thought = Written.of([("hm\n", True), ("\n\nYes.", False)])
    engine = FakeEngine((thought,))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.chat.completions.create(model="demo", messages=ASK)
        stream = await client.chat.completions.create(model="demo", messages=ASK, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    message = whole.choices[0].message
    assert (message.content, message.model_extra["reasoning_content"]) == ("Yes.", "hm")
    assert "".join(delta.content or "" for delta in deltas) == "Yes."
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas).strip() == "hm"


async def test_an_assistants_last_message_is_continued(engine: FakeEngine) -> None:
    begun = [*ASK, {"role": "assistant", "content": "Well,"}]
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        found = await client.chat.completions.create(model="demo", messages=begun)
    assert (requested(engine).prefill, requested(engine).messages[-1].role) == ("Well,", "user")
    assert found.choices[0].message.content == TEXT
    thought = Written.of([("hm", True), ("Well, yes.", False)])
    assert Chat((), "Well,").answer(thought) == "Well, yes."


async def test_anthropic_answers_and_streams(engine: FakeEngine) -> None:
    messages = [{"role": "user", "content": "A story?"}]
    async with serving(engine) as server, claude(server) as client:
        found = await client.messages.create(model="demo", max_tokens=50, system="Be brief.", messages=messages)
        assert requested(engine).messages == (Message("system", "Be brief."), Message("user", "A story?"))
        assert (found.content[0].text, found.stop_reason) == (TEXT, "end_turn")
        async with client.messages.stream(model="demo", max_tokens=50, messages=messages) as stream:
            text = "".join([part async for part in stream.text_stream])
            last = await stream.get_final_message()
        assert (text, last.content[0].text, last.stop_reason) == (TEXT, TEXT, "end_turn")
        assert last.usage.output_tokens == found.usage.output_tokens > 0
        counted = await client.messages.count_tokens(model="demo", messages=messages)
        assert counted.input_tokens == last.usage.input_tokens + (last.usage.cache_read_input_tokens or 0)


async def test_a_failure_within_a_stream_is_an_error_of_the_client() -> None:
    engine = FakeEngine((TEXT,))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        engine.fail_reply("memory", "out of memory")
        stream = await client.chat.completions.create(model="demo", messages=ASK, stream=True)
        with pytest.raises(openai.APIError, match="out of memory"):
            async for _ in stream:
                pass
        assert (await client.chat.completions.create(model="demo", messages=ASK)).choices
