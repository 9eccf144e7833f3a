"""Fields of chats and of plain prompts as they go to the engine, and what their streams have."""

import json
from typing import Any

import httpx2

from specchat.engine.protocol.events import Finished, PromptProgress, Started
from specchat.engine.protocol.options import Message, Speculation, ToolCall
from specchat.engine.protocol.requests import Count
from specchat.engine.protocol.stats import Stats
from specchat.serve.fields import LEFT_OUT
from tests.fake import FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import serving
from tests.serve.test_clients import requested
from tests.serve.test_requests_of_clients import post
from tests.serve.test_tools import CALLING, CALLS, OPENAI

HI = {"role": "user", "content": "hi"}


async def streamed(engine: FakeEngine, path: str, **body: Any) -> list[Any]:
    """The events of a stream, with its last word."""
    async with serving(engine) as server, httpx2.AsyncClient(timeout=60) as client:
        text = (await client.post(f"{server.url}/v1/{path}", json={**body, "stream": True})).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_earlier_messages_go_along_with_all_that_they_have(engine: FakeEngine) -> None:
    call = {"id": "1", "function": {"name": "look"}}
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [
        {"role": "system", "content": "Be brief.", "tool_calls": [call]},
        {"role": "user", "content": "hi", "tool_calls": [call]},
        {"role": "assistant", "content": [picture, {"type": "text", "text": "a"}], "reasoning_content": "Hm."},
        {**HI, "role": "assistant", "reasoning": "So.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "name": "see", "content": "x"},
        HI,
    ]
    async with serving(engine) as server:
        await post(server, "chat/completions", {"messages": messages})
    assert requested(engine).messages == (
        Message("system", "Be brief."),
        Message("user", "hi"),
        Message("assistant", f"{LEFT_OUT.format(kind='image_url')}\na", "Hm."),
        Message("assistant", "hi", "So.", (ToolCall("1", "look", "{}"),)),
        Message("tool", "x", tool_call_id="1", tool_name="see"),
        Message("user", "hi"),
    )


async def test_a_stream_ends_with_its_word_and_has_timings_once() -> None:
    for options in ({}, {"stream_options": {"include_usage": True}}):
        *chunks, done = await streamed(FakeEngine(), "chat/completions", messages=[HI], **options)
        assert done == "[DONE]"
        assert [number for number, chunk in enumerate(chunks) if chunk.get("timings")] == [len(chunks) - 1]
    engine = FakeEngine()
    engine.fail_reply("memory", "out of memory")
    *_, failed, done = await streamed(engine, "chat/completions", messages=[HI])
    assert ("error" in failed, done) == (True, "[DONE]")


async def test_the_first_seed_of_several_is_told() -> None:
    chunks = await streamed(FakeEngine(), "chat/completions", messages=[HI], n=2, seed=5)
    assert {chunk["seed"] for chunk in chunks[:-1]} == {5}


async def test_each_of_several_replies_has_its_own_calls() -> None:
    chunks = await streamed(FakeEngine((CALLING,)), "chat/completions", messages=[HI], tools=OPENAI, n=2)
    begun = [
        (choice["index"], call["index"], call["id"])
        for chunk in chunks[:-1]
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", ())
        if "id" in call
    ]
    assert begun == [(reply, number, call.id) for reply in range(2) for number, call in enumerate(CALLS)]


async def test_a_prompt_that_is_not_repeated_has_no_event() -> None:
    first, *_ = await streamed(FakeEngine(), "completions", prompt="a")
    assert first["choices"][0]["text"].startswith("Hello")


async def test_a_text_is_repeated_as_it_came_and_its_reading_is_told() -> None:
    events = (Started(1, 2, 0, 7, Speculation()), *steps("Hello", (0,)), Finished(1, "stop", "Hello", (1,), Stats()))
    engine = FakeEngine(((PromptProgress(1, 1, 2), *events),))
    chunks = await streamed(engine, "completions", prompt="a", echo=True, return_progress=True)
    assert [bool(chunk.get("prompt_progress")) for chunk in chunks[:2]] == [True, False]
    assert not any(isinstance(request, Count) for request in engine.requests)


async def test_replies_to_several_prompts_are_bounded_together(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        found = await post(server, "completions", {"prompt": ["a"] * 65, "n": 2})
        assert (found.status_code, "at most 128 replies" in found.text) == (400, True)
