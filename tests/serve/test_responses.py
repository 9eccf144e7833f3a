"""`/v1/responses` by OpenAI's client package: items, events, calls, and chats that go on from a response."""

import json
from typing import Any

import httpx2
import openai
import pytest

from specchat.engine.protocol.options import Grammar, Message, ToolCall, Written
from specchat.serve.compaction import ASK
from specchat.serve.fields import LEFT_OUT
from specchat.serve.openai_responses import SUMMARY
from tests.fake import FakeEngine
from tests.serve.conftest import serving
from tests.serve.test_clients import TEXT, requested
from tests.serve.test_tools import CALLING, CALLS, FUNCTION, TOOL

TOOLS: list[Any] = [{"type": "function", **FUNCTION, "strict": False}]
THOUGHT = Written.of([("hm\n", True), ("\n\nYes.", False)])


async def test_a_text_is_answered_whole_and_streamed(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.responses.create(
            model="demo", input="A story?", instructions="Be brief.", max_output_tokens=60, metadata={"a": "b"},
            extra_body={"seed": 7, "strategy": "lookup"},
        )  # fmt: skip
        request = requested(engine)
        assert request.messages == (Message("system", "Be brief."), Message("user", "A story?"))
        assert (request.limits.max_tokens, request.sampling.seed, request.speculation.strategy) == (60, 7, "lookup")
        assert (whole.output_text, whole.status, whole.metadata) == (TEXT, "completed", {"a": "b"})
        assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens > 0
        async with client.responses.stream(model="demo", input="A story?") as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
    assert streamed.output_text == TEXT
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-3:] == ["response.content_part.done", "response.output_item.done", "response.completed"]
    assert [event.sequence_number for event in events] == sorted({event.sequence_number for event in events})


async def test_a_format_is_a_grammar(engine: FakeEngine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form: Any = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        await client.responses.create(model="demo", input="hi", text={"format": form})
        assert requested(engine).grammar == Grammar("json_schema", json.dumps(schema))
        await client.responses.create(model="demo", input="hi", text={"format": {"type": "json_object"}})
        assert requested(engine).grammar == Grammar("json_object")


async def test_reasoning_is_an_item_of_its_own_and_comes_back() -> None:
    engine = FakeEngine((THOUGHT,))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.responses.create(model="demo", input="hi")
        async with client.responses.stream(model="demo", input="hi") as stream:
            streamed = await stream.get_final_response()
        for found in (whole, streamed):
            assert [item.type for item in found.output] == ["reasoning", "message"]
            assert (found.output[0].content[0].text.strip(), found.output_text) == ("hm", "Yes.")
        items = [{"role": "user", "content": "hi"}, *(item.model_dump() for item in whole.output)]
        again = {"role": "user", "content": [{"type": "input_text", "text": "so?"}]}
        await client.responses.create(model="demo", input=[*items, again])
    said = requested(engine).messages
    assert said == (Message("user", "hi"), Message("assistant", "Yes.", "hm\n"), Message("user", "so?"))


async def test_calls_are_items_whose_results_go_on_from_the_response() -> None:
    engine = FakeEngine((CALLING, "Done."))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        async with client.responses.stream(model="demo", input="hi", tools=TOOLS) as stream:
            first = await stream.get_final_response()
        assert (requested(engine).tools, requested(engine).tool_choice) == ((TOOL,), "auto")
        calls = [item for item in first.output if item.type == "function_call"]
        assert [(c.call_id, c.name, c.arguments) for c in calls] == [(c.id, c.name, c.arguments) for c in CALLS]
        results: list[Any] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"of {call.call_id}"} for call in calls
        ]
        then = await client.responses.create(
            model="demo", input=results, tools=TOOLS, previous_response_id=first.id, store=False
        )
        told = [Message("tool", f"of {call.id}", tool_call_id=call.id, tool_name="look") for call in CALLS]
        expected = (Message("user", "hi"), Message("assistant", "I look.", tool_calls=CALLS), *told)
        assert (then.output_text, requested(engine).messages) == ("Done.", expected)
        items: list[Any] = [{"role": "user", "content": "hi"}, *(item.model_dump() for item in first.output), *results]
        await client.responses.create(model="demo", input=items, tools=TOOLS)
        assert requested(engine).messages == expected
        again = await client.responses.create(model="demo", input=items, tools=TOOLS)
        kept = [item.id async for item in client.responses.input_items.list(again.id, order="asc")]
        for ids, more in ((kept, []), ([kept[0], *(item.id for item in first.output)], results)):
            named: Any = [{"type": "item_reference", "id": id} for id in ids]
            await client.responses.create(model="demo", input=[*named, *more], tools=TOOLS)
            assert requested(engine).messages == expected
            await client.responses.input_tokens.count(model="demo", input=[*named, *more], tools=TOOLS)
            await client.responses.compact(model="demo", input=[*named, *more])
            assert requested(engine).messages[:-1] == expected
        named = [items[0], {"type": "item_reference", "id": "msg_other"}]
        with pytest.raises(openai.NotFoundError, match=r"input\.1: the item msg_other is not kept"):
            await client.responses.create(model="demo", input=named)
        for unknown in (then.id, "resp_other"):  # the second was not to be kept
            with pytest.raises(openai.NotFoundError, match="previous_response_id"):
                await client.responses.create(model="demo", input="hi", previous_response_id=unknown)
    async with serving(FakeEngine((CALLING,))) as server, httpx2.AsyncClient(timeout=30) as client:
        body = {"input": "hi", "tools": TOOLS, "parallel_tool_calls": False}
        found = (await client.post(f"{server.url}/v1/responses", json=body)).json()
        assert [item["type"] for item in found["output"]] == ["message", "function_call"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "none"}}}}, "text.format"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"input": [{"type": "item_reference"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
        ({"input": [{"role": "critic", "content": "x"}]}, "critic"),
        ({"input": [{"role": "tool", "content": "x"}, {"role": "user", "content": "y"}]}, "role tool"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_file"}]}]}, "input_file"),
        (
            {"grammar": 'root ::= "a"', "text": {"format": {"type": "json_object"}}},
            "grammar and text.format cannot be used together",
        ),
        (
            {"guided_regex": "a", "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            "guided_regex and text.format cannot be used together",
        ),
        ({"input": []}, "no message of the user"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "no tool x"),
        ({"temperature": -1}, "temperature"),
    ],
)
async def test_what_cannot_be_had_is_named(engine: FakeEngine, changes: Any, words: str) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(timeout=30) as client:
        found = await client.post(f"{server.url}/v1/responses", json={"input": "hi", **changes})
        assert found.status_code == 400
        assert words in found.json()["error"]["message"]


async def test_items_that_follow_each_other_are_one_message_of_the_assistant(engine: FakeEngine) -> None:
    """Not two answers, nor what the user said in two messages."""
    items: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "there"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}, {"type": "other", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "input_image"}, {"type": "output_text", "text": "One."}]},
        {"type": "function_call", "call_id": "1", "name": "look"},
        {"type": "function_call_output", "call_id": "1", "output": ""},
        {"type": "function_call_output", "call_id": "2", "output": "nothing"},
        {"role": "assistant", "content": "Two."},
        {"role": "assistant", "content": "Three."},
        {"role": "user", "content": "so?"},
    ]
    async with serving(engine) as server, httpx2.AsyncClient(timeout=30) as client:
        await client.post(f"{server.url}/v1/responses", json={"input": items, "top_logprobs": 2})
    assert requested(engine).logprobs == 2
    assert requested(engine).messages == (
        Message("user", "hi"),
        Message("user", "there"),
        Message("assistant", f"{LEFT_OUT.format(kind='input_image')}\nOne.", "Hm.", (ToolCall("1", "look", "{}"),)),
        Message("tool", "", tool_call_id="1", tool_name="look"),
        Message("tool", "nothing", tool_call_id="2"),
        Message("assistant", "Two."),
        Message("assistant", "Three."),
        Message("user", "so?"),
    )


async def test_kept_responses_can_be_read_and_dropped(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        asked: list[Any] = [{"role": "user", "content": "hi"}, {"type": "message", "role": "user", "content": "there"}]
        made = await client.responses.create(model="demo", input=asked)
        again = await client.responses.retrieve(made.id)
        assert (again.output_text, again.usage, again.id) == (made.output_text, made.usage, made.id)
        items = [item async for item in client.responses.input_items.list(made.id)]
        assert [item.content[0].text for item in items] == ["there", "hi"]
        assert len({item.id for item in items}) == 2
        in_order = [item async for item in client.responses.input_items.list(made.id, order="asc")]
        assert in_order == items[::-1]
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="other") as stranger:
            with pytest.raises(openai.NotFoundError, match="not kept"):
                await stranger.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError, match="stream"):
            await client.responses.retrieve(made.id, stream=True)
        await client.responses.delete(made.id)
        for gone in (client.responses.retrieve(made.id), client.responses.delete(made.id)):
            with pytest.raises(openai.NotFoundError, match="not kept"):
                await gone
        text = await client.responses.create(model="demo", input="hi")
        (item,) = [item async for item in client.responses.input_items.list(text.id)]
        assert (item.content[0].text, item.role, item.status) == ("hi", "user", "completed")
        told: list[Any] = [{"id": "msg_7", "role": "assistant", "content": "Yes."}, {"role": "user", "content": "so?"}]
        made = await client.responses.create(model="demo", input=told)
        _, item = [item async for item in client.responses.input_items.list(made.id)]
        assert (item.id, item.content[0].type) == ("msg_7", "output_text")
        counted = await client.responses.input_tokens.count(model="demo", input="hi there", instructions="Be brief.")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 5)


async def test_a_chat_is_compacted_to_a_summary_that_stands_for_it() -> None:
    engine = FakeEngine((Written.of([("Hm.", True), ("They look for ä.", False)]), "Found."))
    chat: list[Any] = [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "nothing"},
        {"role": "assistant", "content": "Nothing."},
    ]
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        compacted = await client.responses.compact(model="demo", input=chat, instructions="Be brief.")
        request = requested(engine)
        assert (request.messages[0], request.messages[-2]) == (
            Message("system", "Be brief."),
            Message("assistant", "Nothing."),
        )
        assert (request.messages[-1].content, request.tools) == (ASK, ())
        kept, item = compacted.output
        assert (compacted.object, item.type, kept.content[0].text) == ("response.compaction", "compaction", "Look.")
        assert compacted.usage.output_tokens > 0
        again: list[Any] = [
            *(one.model_dump(exclude_none=True, warnings=False) for one in compacted.output),
            {"role": "user", "content": "Go on."},
        ]
        await client.responses.create(model="demo", input=again)
        said = [message.content for message in requested(engine).messages]
        assert said == ["Look.", f"{SUMMARY}They look for ä.", "Go on."]
        with pytest.raises(openai.BadRequestError, match="not one of specchat"):
            await client.responses.create(
                model="demo", input=[{"type": "compaction", "encrypted_content": "VGhl!eSBs"}]
            )
