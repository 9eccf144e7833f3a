"""Tools by the client packages of OpenAI and Anthropic: what the engine gets, and what the clients make of calls."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import CallDelta, Message, Speculation, Tool, ToolCall, Written
from specchat.engine.protocol.requests import Count
from specchat.engine.protocol.stats import Stats
from specchat.serve.anthropic import MessageWriter
from specchat.serve.api_writer import ApiWriter, chunks, whole
from specchat.serve.generation import NO_CHAT, ReplyEvent
from specchat.serve.openai_chat import ChatRequest, ChatWriter
from specchat.serve.response_events import ResponseWriter
from tests.fake import FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import claude, serving
from tests.serve.test_clients import requested

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = Tool("look", "Look into a file.", json.dumps(SCHEMA))
FUNCTION = {"name": "look", "description": TOOL.description, "parameters": SCHEMA}
OPENAI: list[Any] = [{"type": "function", "function": FUNCTION}]
ANTHROPIC: list[Any] = [{"name": "look", "description": TOOL.description, "input_schema": SCHEMA}]
CALLS = (ToolCall("abcdefgh1", "look", '{"path": "a.txt"}'), ToolCall("abcdefgh2", "look", '{"path": "ç.txt"}'))
CALLING = Written("I look.", tool_calls=CALLS)
HI: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine((CALLING,))


async def test_openai_gets_calls_whole_and_streamed(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.chat.completions.create(model="demo", messages=HI, tools=OPENAI)
        assert (requested(engine).tools, requested(engine).tool_choice) == ((TOOL,), "auto")
        async with client.chat.completions.stream(model="demo", messages=HI, tools=OPENAI) as stream:
            streamed = await stream.get_final_completion()
    for found in (whole, streamed):
        choice = found.choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
        assert [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [
            (call.id, call.name, call.arguments) for call in CALLS
        ]


async def test_openai_sends_calls_and_results_back(engine: FakeEngine) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in CALLS
    ]}  # fmt: skip
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"text of {call.id}"} for call in CALLS]
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        chat: list[Any] = [*HI, called, *results]
        await client.chat.completions.create(model="demo", messages=chat, tools=OPENAI, tool_choice="none")
    request = requested(engine)
    assert request.tool_choice == "none"
    assert request.messages == (
        Message("user", "hi"),
        Message("assistant", "", tool_calls=CALLS),
        *(Message("tool", f"text of {call.id}", tool_call_id=call.id, tool_name="look") for call in CALLS),
    )


async def test_a_choice_is_handed_to_the_engine(engine: FakeEngine) -> None:
    named = {"type": "function", "function": {"name": "look"}}
    choices: list[tuple[Any, str]] = [("required", "required"), (named, "look"), ("auto", "auto")]
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        for choice, expected in choices:
            await client.chat.completions.create(model="demo", messages=HI, tools=OPENAI, tool_choice=choice)
            assert requested(engine).tool_choice == expected


async def test_without_parallel_calls_the_first_is_passed_on(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        kind: dict[str, Any] = {"model": "demo", "messages": HI, "tools": OPENAI, "parallel_tool_calls": False}
        whole = await client.chat.completions.create(**kind)
        async with client.chat.completions.stream(**kind) as stream:
            streamed = await stream.get_final_completion()
    for found in (whole, streamed):
        assert [call.id for call in found.choices[0].message.tool_calls] == [CALLS[0].id]


async def test_anthropic_gets_calls_whole_and_streamed(engine: FakeEngine) -> None:
    async with serving(engine) as server, claude(server) as client:
        kind: dict[str, Any] = {"model": "demo", "max_tokens": 99, "messages": HI, "tools": ANTHROPIC}
        whole = await client.messages.create(**kind, tool_choice={"type": "auto"})
        assert (requested(engine).tools, requested(engine).tool_choice) == ((TOOL,), "auto")
        async with client.messages.stream(**kind) as stream:
            streamed = await stream.get_final_message()
        counted = await client.messages.count_tokens(model="demo", messages=HI, tools=ANTHROPIC)
        assert counted.input_tokens > 0
        count = engine.requests[-1]
        assert isinstance(count, Count)
        assert (count.tools, count.limits.context) == ((TOOL,), "refuse")
        alone = await client.messages.create(**kind, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    for found in (whole, streamed):
        text, *used = found.content
        assert (found.stop_reason, text.text) == ("tool_use", "I look.")
        assert [(b.id, b.name, b.input) for b in used] == [(c.id, c.name, json.loads(c.arguments)) for c in CALLS]
    assert [block.type for block in alone.content] == ["text", "tool_use"]


async def test_anthropics_own_loop_runs_tools_to_the_answer() -> None:
    """Its first request begins a thread; refused by its word, it sends the whole chat."""
    from anthropic import beta_async_tool

    @beta_async_tool
    async def look(path: str) -> str:
        """Look into a file."""
        return f"text of {path}"

    engine = FakeEngine((replace(CALLING, tool_calls=CALLS[:1]), "Done."))
    async with serving(engine) as server, claude(server) as client:
        runner = client.beta.messages.tool_runner(model="demo", max_tokens=99, messages=HI, tools=[look])
        last = await runner.until_done()
    assert last.content[0].text == "Done."
    assert requested(engine).messages == (
        Message("user", "hi"),
        Message("assistant", "I look.", tool_calls=CALLS[:1]),
        Message("tool", "text of a.txt", tool_call_id=CALLS[0].id, tool_name="look"),
    )


async def test_anthropic_sends_calls_and_results_back(engine: FakeEngine) -> None:
    used = [{"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(c.arguments)} for c in CALLS]
    results = [
        {"type": "tool_result", "tool_use_id": CALLS[0].id, "content": "plain"},
        {
            "type": "tool_result",
            "tool_use_id": CALLS[1].id,
            "is_error": True,
            "content": [{"type": "text", "text": "part"}],
        },
        {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
    ]
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    chat: list[Any] = [*HI, {"role": "assistant", "content": [thought, *used]}, {"role": "user", "content": results}]
    async with serving(engine) as server, claude(server) as client:
        await client.messages.create(model="demo", max_tokens=99, messages=chat, tools=ANTHROPIC)
    assert requested(engine).messages == (
        Message("user", "hi"),
        Message("assistant", "", "hm", CALLS),
        Message("tool", "plain", tool_call_id=CALLS[0].id, tool_name="look"),
        Message("tool", "part", tool_call_id=CALLS[1].id, tool_name="look"),
        Message("user", "Go on."),
    )


async def test_clients_are_told_the_stop_string_and_calls_that_stay_text() -> None:
    made = steps("One two")
    stopped = Finished(1, "stop", "One two", (), Stats(num_steps=len(made)), stopped_by="fin", unreadable_calls=2)
    engine = FakeEngine(([Started(1, 3, 0, 0, Speculation()), *made, stopped],))
    async with serving(engine) as server, claude(server) as client:
        kind: dict[str, Any] = {"model": "demo", "max_tokens": 99, "messages": HI, "stop_sequences": ["fin"]}
        whole = await client.messages.create(**kind)
        async with client.messages.stream(**kind) as stream:
            streamed = await stream.get_final_message()
    for found in (whole, streamed):
        assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", "fin")
    async with serving(engine) as server, httpx2.AsyncClient(timeout=30) as other:
        told = (await other.post(f"{server.url}/v1/chat/completions", json={"messages": HI})).json()
    assert told["metrics"]["unreadable_tool_calls"] == 2


async def test_a_reply_of_calls_alone_has_no_text() -> None:
    engine = FakeEngine((Written(tool_calls=CALLS[:1]),))
    async with serving(engine) as server, httpx2.AsyncClient(timeout=30) as client:
        body = {"messages": HI, "tools": OPENAI}
        message = (await client.post(f"{server.url}/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        assert (message["content"], len(message["tool_calls"])) == (None, 1)
        body = {"messages": HI, "max_tokens": 9, "tools": ANTHROPIC}
        content = (await client.post(f"{server.url}/v1/messages", json=body)).json()["content"]
        assert [block["type"] for block in content] == ["tool_use"]


@pytest.mark.parametrize(
    "reply",
    [
        ChatWriter(ChatRequest(messages=[]), "demo", NO_CHAT),
        MessageWriter("demo", NO_CHAT),
        ResponseWriter({"model": "demo"}, NO_CHAT, lambda *_: None),
    ],
    ids=lambda reply: type(reply).__name__,
)
async def test_a_stream_says_something_while_a_call_is_written(reply: ApiWriter) -> None:
    writing, calling = steps(CALLING)[-2:]

    async def events() -> AsyncGenerator[list[ReplyEvent], None]:
        yield [replace(writing, tool_calls=(), call_deltas=())]
        yield [calling]
        yield [Finished.of(1, "stop", CALLING, (), Stats())]

    sent = [chunk async for chunk in chunks(reply, [Started(1, 3, 0, 0, Speculation())], events())]
    assert sent[1] == reply.alive
    assert CALLS[1].id in sent[2]
    assert all(sent)


async def test_arguments_come_in_parts(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
            chunks = await client.chat.completions.create(model="demo", messages=HI, tools=OPENAI, stream=True)
            deltas = [call for chunk in [c async for c in chunks] for call in chunk.choices[0].delta.tool_calls or ()]
            kind: dict[str, Any] = {"model": "demo", "input": "hi", "tools": [{"type": "function", **FUNCTION}]}
            async with client.responses.stream(**kind) as stream:
                events = [event async for event in stream]
        async with (
            claude(server) as other,
            other.messages.stream(model="demo", max_tokens=99, messages=HI, tools=ANTHROPIC) as messages,
        ):
            blocks = [event async for event in messages if event.type == "input_json"]
    halves = [part for call in CALLS for part in (call.arguments[:1], call.arguments[1:])]
    assert [d.function.arguments for d in deltas if d.function.arguments] == halves
    assert [(d.index, d.id) for d in deltas if d.id] == [(n, call.id) for n, call in enumerate(CALLS)]
    assert [e.delta for e in events if e.type == "response.function_call_arguments.delta"] == halves
    done = [e.item for e in events if e.type == "response.output_item.done" and e.item.type == "function_call"]
    assert [(item.call_id, item.arguments, item.status) for item in done] == [
        (call.id, call.arguments, "completed") for call in CALLS
    ]
    assert [block.partial_json for block in blocks] == halves


async def test_an_item_that_is_cut_is_told_as_incomplete() -> None:
    part = replace(steps(CALLING)[-1], tool_calls=(), call_deltas=(CallDelta("abcdefgh1", "look", '{"pa'),))
    for last, kinds in ((part, ["completed", "incomplete"]), (steps("you")[0], ["incomplete"])):
        reply = ResponseWriter({"model": "m"}, NO_CHAT, lambda *_: None)

        async def events(*some: Step) -> AsyncGenerator[list[ReplyEvent], None]:
            yield [Started(1, 3, 0, 0, Speculation()), *some, Finished.of(1, "length", Written(), (), Stats())]

        items = (await whole(reply, events(steps("I look.")[0], last)))["output"]
        assert [item["status"] for item in items] == kinds
        assert kinds == ["incomplete"] or (items[-1]["type"], items[-1]["arguments"]) == ("function_call", '{"pa')


async def test_calls_that_cannot_be_followed_come_whole() -> None:
    whole = [replace(step, call_deltas=()) for step in steps(CALLING)[-2:]]
    reply = ChatWriter(ChatRequest.model_validate({"messages": HI}), "m", NO_CHAT)

    async def events() -> AsyncGenerator[list[ReplyEvent], None]:
        yield [*whole, Finished.of(1, "stop", CALLING, (), Stats())]

    text = "".join([chunk async for chunk in chunks(reply, [Started(1, 3, 0, 0, Speculation())], events())])
    sent = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    calls = [call for chunk in sent for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    told = [call["function"]["arguments"] for call in calls if call["function"]["arguments"]]
    assert told == [call.arguments for call in CALLS]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
        ({"tools": [{"description": "x"}]}, "tools.0.name"),
        ({"tool_choice": {"type": "tool", "name": "other"}, "tools": ANTHROPIC}, "no tool other"),
        ({"tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document"),
    ],
)  # fmt: skip
async def test_what_anthropics_clients_cannot_have_is_named(engine: FakeEngine, changes: Any, words: str) -> None:
    async with serving(engine) as server, httpx2.AsyncClient(timeout=30) as client:
        for path in ("messages", "messages/count_tokens"):
            found = await client.post(f"{server.url}/v1/{path}", json={"messages": HI, "max_tokens": 9, **changes})
            assert (found.status_code, found.json()["type"]) == (400, "error")
            assert words in found.json()["error"]["message"]


def test_the_first_event_tells_what_was_in_the_cache() -> None:
    begun = json.loads(MessageWriter("demo", NO_CHAT).begin(Started(1, 9, 4, 0, Speculation())).split("data: ")[1])
    assert begun["message"]["usage"] == {"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 0}


def test_the_scripted_engine_has_a_step_for_each_call() -> None:
    assert [step.tool_calls for step in steps(CALLING)[-2:]] == [(CALLS[0],), (CALLS[1],)]
    assert isinstance(steps(CALLING)[-1], Step)
