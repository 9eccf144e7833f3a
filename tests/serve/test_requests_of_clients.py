"""Requests as coding agents, frameworks and benchmarks send them: what the engine gets, and what comes back."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from specchat.engine.protocol.events import Event, Finished, Piece, Started
from specchat.engine.protocol.options import CallDelta, CutCalls, Grammar, Message, Speculation, ToolCall, Written
from specchat.engine.protocol.pair_info import TemplateFacts
from specchat.engine.protocol.stats import Stats
from specchat.serve import generation
from specchat.serve.api_writer import LEFT_OUT
from tests.fake import INFO, FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import SOON_S, Server, claude, serving
from tests.serve.test_clients import requested
from tests.serve.test_tools import ANTHROPIC, FUNCTION, OPENAI
from tests.service.made import Clock

HI: list[Any] = [{"role": "user", "content": "hi"}]
BILLED = "x-anthropic-billing-header: cc_version=9.9.9.0cf; cc_entrypoint=cli;"
AGENT = {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}
SCHEMA = {"type": "object", "properties": {"born": {"type": "integer"}}, "required": ["born"]}
STARTED = Started(1, 3, 0, 0, Speculation())


async def post(server: Server, path: str, body: Any, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=SOON_S) as client:
        return await client.post(f"{server.url}/v1/{path}", json=body, headers=headers)


async def data(server: Server, path: str, body: Any) -> list[dict[str, Any]]:
    """The events of a streamed reply."""
    text = (await post(server, path, {**body, "stream": True})).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def on(path: str, said: str = "hi", **fields: Any) -> dict[str, Any]:
    """A request for a path of the three chat APIs."""
    if path == "responses":
        return {"input": said, **fields}
    return {"messages": [{"role": "user", "content": said}], "max_tokens": 99, **fields}


@pytest.mark.parametrize("billed", [[{"type": "text", "text": BILLED}, AGENT], f"{BILLED}\nYou are an agent."])
async def test_system_messages_come_anywhere_and_without_the_line_for_the_bill(engine: FakeEngine, billed: Any) -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": "Make a file."}]}
    late = {"role": "system", "content": [{"type": "text", "text": "Known helpers: none."}]}
    unknown = {"context_management": {"edits": []}, "metadata": {"user_id": "me"}, "thinking": {"type": "adaptive"}}
    body = {"max_tokens": 5, "system": billed, "messages": [asked, late], "tools": ANTHROPIC, **unknown}
    expected = (
        Message("system", "You are an agent."),
        Message("user", "Make a file."),
        Message("system", "Known helpers: none."),
    )
    async with serving(engine) as server:
        assert (await post(server, "messages?beta=true", body)).status_code == 200
        assert requested(engine).messages == expected
        chat = {"messages": [{"role": "developer", "content": billed}, asked, {**late, "role": "developer"}]}
        assert (await post(server, "chat/completions", chat)).status_code == 200
        assert requested(engine).messages == expected
        assert (await post(server, "responses", {"input": chat["messages"]})).status_code == 200
        assert requested(engine).messages == expected
        body["messages"] = [{**asked, "role": "critic"}]
        assert "messages.0.role" in (await post(server, "messages", body)).text


async def test_functions_of_namespaces_go_to_the_model_and_come_back() -> None:
    call = ToolCall("abcdefgh1", "team.look", '{"path": "a"}')
    engine = FakeEngine((Written(tool_calls=(call,)),))
    tools = [
        {"type": "function", "name": "run", "parameters": SCHEMA},
        {"type": "namespace", "name": "team", "description": "Helpers.", "tools": [{"type": "function", **FUNCTION}]},
        {"type": "web_search", "external_web_access": True},
    ]
    before = {"type": "function_call", "call_id": "1", "namespace": "team", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "ok"}
    body: dict[str, Any] = {"model": "m", "input": [*HI, before, result], "tools": tools, "tool_choice": "auto"}
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        raw = await client.responses.with_raw_response.create(**body)
        assert raw.headers[LEFT_OUT] == "web_search"
        assert [tool.name for tool in requested(engine).tools] == ["run", "team.look"]
        assert requested(engine).messages[1].tool_calls == (ToolCall("1", "team.look", "{}"),)
        async with client.responses.stream(**body) as stream:
            streamed = await stream.get_final_response()
        for reply in (raw.parse(), streamed):
            (item,) = reply.output
            assert (item.name, item.namespace, item.arguments) == ("look", "team", call.arguments)
        chosen = {"type": "function", "name": "look", "namespace": "team"}
        assert (await post(server, "responses", {**body, "tool_choice": chosen})).status_code == 200
        assert requested(engine).tool_choice == "team.look"
        wrong = [{**tools[1], "tools": [{"type": "function", "name": "a b"}]}, {**tools[1], "tools": [7]}]
        for tool, words in zip(wrong, ("name", "tools.0.tools.0"), strict=True):
            refused = await post(server, "responses", {"input": "hi", "tools": [tool]})
            assert (refused.status_code, words in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("path", "own", "hosted", "chosen"),
    [
        ("chat/completions", OPENAI, {"type": "web_search"}, {"type": "web_search"}),
        ("responses", [{"type": "function", **FUNCTION}], {"type": "mcp"}, {"type": "mcp"}),
        ("messages", ANTHROPIC, {"type": "web_search_20250305", "name": "w"}, {"type": "tool", "name": "w"}),
    ],
)
async def test_tools_of_a_provider_are_left_out_and_named(
    engine: FakeEngine, path: str, own: list[Any], hosted: Any, chosen: Any
) -> None:
    async with serving(engine) as server:
        for stream in (False, True):
            found = await post(server, path, on(path, tools=[hosted, *own], stream=stream))
            assert (found.status_code, found.headers[LEFT_OUT]) == (200, hosted["type"])
            assert [tool.name for tool in requested(engine).tools] == ["look"]
        assert LEFT_OUT not in (await post(server, path, on(path, tools=own))).headers
        refused = await post(server, path, on(path, tools=[hosted, *own], tool_choice=chosen))
        assert refused.status_code == 400


async def test_a_schema_goes_to_the_engine_beside_tools(engine: FakeEngine) -> None:
    named = {"name": "p", "schema": SCHEMA}
    bodies = {
        "chat/completions": {"tools": OPENAI, "response_format": {"type": "json_schema", "json_schema": named}},
        "responses": {
            "tools": [{"type": "function", **FUNCTION}],
            "text": {"format": {"type": "json_schema", **named}},
        },
        "messages": {"tools": ANTHROPIC, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    }
    async with serving(engine) as server:
        for path, fields in bodies.items():
            assert (await post(server, path, on(path, **fields))).status_code == 200
            assert (requested(engine).grammar, len(requested(engine).tools)) == (
                Grammar("json_schema", json.dumps(SCHEMA)),
                1,
            )


async def test_threads_are_refused_by_the_word_at_which_clients_send_the_whole_chat(engine: FakeEngine) -> None:
    async with serving(engine) as server, claude(server) as client:
        for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
            found = await post(server, "messages", on("messages", thread=thread))
            assert (found.status_code, found.json()["error"]["details"]) == (
                400,
                {"error_code": "thread_unsupported_request"},
            )
        with pytest.raises(Exception, match="thread is not supported") as raised:
            await client.messages.create(**on("messages", model="m"), extra_body={"thread": {"type": "create"}})
        assert type(raised.value).__name__ == "ThreadUnsupportedRequestError"


def cut(raw: str, *arguments: str, made: tuple[ToolCall, ...] = ()) -> list[Event]:
    """A reply that is cut inside the text `raw` of a call, whose arguments come in parts, if at all.

    A step that completes the calls `made` begins it.
    """
    (step,) = steps("Well.", accepted=(0,))[:1]
    called = replace(step, pieces=(), call_pieces=(Piece(f"made</call>{raw}", "plain"),), tool_calls=made)
    deltas = [replace(step, pieces=(), call_deltas=(CallDelta("abcdefgh1", "look", part),)) for part in arguments]
    last = ToolCall("abcdefgh1", "look", "".join(arguments)) if arguments else None
    end = Finished.of(1, "length", Written("Well", tool_calls=made), (1, 2), Stats(3, 0, 2, num_steps=2))
    return [STARTED, step, called, *deltas, replace(end, cut_calls=CutCalls((), last, raw))]


@pytest.mark.parametrize(
    ("reply", "text", "arguments"),
    [
        (cut("<call>look: {", '{"pa', 'th": "'), "Well", '{"path": "'),
        (cut("<call>look: {", '{"path": ', '"a"}'), "Well", '{"path": "a"}'),
        (cut("<call><look><path>a"), "Well<call><look><path>a", None),
    ],
    ids=["cut arguments", "cut mark", "tags"],
)
async def test_a_cut_call_has_what_was_written_of_it(reply: list[Event], text: str, arguments: str | None) -> None:
    whole = arguments is not None and arguments.endswith("}")
    async with serving(FakeEngine((reply,))) as server:
        body = on("chat/completions", tools=OPENAI)
        choice = (await post(server, "chat/completions", body)).json()["choices"][0]
        calls = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", text)
        assert calls == ([] if arguments is None else [arguments])
        deltas = [c["choices"][0]["delta"] for c in await data(server, "chat/completions", body)]
        assert "".join(delta.get("content", "") for delta in deltas) == text
        parts = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())]
        assert "".join(parts) == (arguments or "")

        body = on("messages", tools=ANTHROPIC)
        said = (await post(server, "messages", body)).json()
        assert (said["stop_reason"], said["content"][0]["text"]) == (
            "max_tokens",
            text if whole or arguments is None else "Well<call>look: {",
        )
        assert [block["input"] for block in said["content"][1:]] == ([json.loads(arguments or "")] if whole else [])
        streamed = await data(server, "messages", body)
        assert "".join(event.get("delta", {}).get("text", "") for event in streamed) == text

        output = (await post(server, "responses", on("responses", tools=[{"type": "function", **FUNCTION}]))).json()
        assert [item.get("arguments") or item["content"][0]["text"] for item in output["output"]] == (
            ["Well", arguments] if arguments else [text]
        )


async def test_a_call_that_was_made_is_no_text_where_the_next_one_is_cut() -> None:
    made = (ToolCall("abcdefgh0", "look", '{"path": "a"}'),)
    used = {"name": "look", "arguments": {"path": "a"}}
    async with serving(FakeEngine((cut("<call>look: {", '{"pa', made=made),))) as server:
        said = (await post(server, "messages", on("messages", tools=ANTHROPIC))).json()["content"]
        assert [block.get("text") or block["input"] for block in said] == ["Well<call>look: {", used["arguments"]]
        said = (await post(server, "../api/chat", on("chat", tools=OPENAI, stream=False))).json()["message"]
        assert (said["content"], said["tool_calls"]) == ("Well<call>look: {", [{"function": used}])
        said = (await post(server, "chat/completions", on("chat", tools=OPENAI))).json()["choices"][0]["message"]
        assert (said["content"], [call["function"]["arguments"] for call in said["tool_calls"]]) == (
            "Well",
            [made[0].arguments, '{"pa'],
        )
        said = (await post(server, "responses", on("responses", tools=[{"type": "function", **FUNCTION}]))).json()
        kinds = [(item["type"], item["status"]) for item in said["output"]]
        assert kinds == [
            ("message", "completed"),
            ("function_call", "completed"),
            ("function_call", "incomplete"),
        ]


CHOICES = (("enable_thinking", (True, False)), ("reasoning_effort", ("low", "medium", "high")))
OFF, LOW = {"enable_thinking": False, "reasoning_effort": "low"}, {"enable_thinking": True, "reasoning_effort": "low"}


REASONING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"reasoning_effort": "low"}, LOW),
    ({"reasoning_effort": "minimal"}, LOW),
    ({"reasoning_effort": "xhigh"}, {**LOW, "reasoning_effort": "high"}),
    ({"reasoning_effort": "none"}, OFF),
    ({"reasoning": {"effort": "low", "summary": None}}, LOW),
    ({"reasoning": {"enabled": False}}, OFF),
    ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, OFF),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"enable_thinking": True}),
    ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, {"reasoning_effort": "high"}),
    ({"enable_thinking": False}, OFF),
    ({"reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "low"}}, LOW),
]
"""Fields of a request about reasoning, and the arguments of the template that they become."""


async def test_fields_about_reasoning_become_arguments_of_the_template() -> None:
    engine = FakeEngine(info=replace(INFO, template=TemplateFacts(choices=CHOICES)))
    async with serving(engine) as server:
        for fields, expected in REASONING:
            for path in ("chat/completions", "responses", "messages"):
                found = await post(server, path, on(path, **fields))
                assert (found.status_code, dict(requested(engine).template)) == (200, expected), (fields, found.text)
    async with serving(plain := FakeEngine()) as server:
        for fields, _ in REASONING:
            assert (await post(server, "chat/completions", on("", **fields))).status_code == 200, fields
            assert requested(plain).template == ()
        wrong = await post(server, "chat/completions", on("", reasoning_effort="enormous"))
        assert "reasoning_effort" in wrong.json()["error"]["message"]


async def test_tokens_of_reasoning_are_counted_and_a_summary_is_the_reasoning() -> None:
    thought = steps(Written.of([("Hm hm.", True), ("Yes.", False)]), accepted=(9, 9))
    last = Finished(1, "stop", "Hm hm.Yes.", (), Stats(3, 0, 5, num_steps=2, reasoning_tokens=3), ((0, 6),))
    async with serving(FakeEngine(([STARTED, *thought, last],))) as server:
        usage = (await post(server, "chat/completions", on("chat/completions"))).json()["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 3
        said = await data(server, "messages", on("messages"))
        assert said[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 3}
        kinds = [event.get("delta", {}).get("type") for event in said if event["type"] != "ping"]
        assert kinds[1:6] == [None, "thinking_delta", "signature_delta", None, None]
        assert said[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
        body: dict[str, Any] = {"model": "m", "input": "hi"}
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
            for reasoning in ({}, {"reasoning": {"summary": "auto"}}):
                whole = await client.responses.create(**body, **reasoning)
                async with client.responses.stream(**body, **reasoning) as stream:
                    events = [event async for event in stream]
                    streamed = await stream.get_final_response()
                for reply in (whole, streamed):
                    item, message = reply.output
                    parts = item.summary if reasoning else item.content
                    assert ([part.text for part in parts], message.content[0].text) == (["Hm hm."], "Yes.")
                    assert reply.usage.output_tokens_details.reasoning_tokens == 3
                told = [event.type for event in events if "summary" in event.type]
                assert bool(told) == bool(reasoning)
        again = {"input": [*HI, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}, *HI]}
        engine = FakeEngine()
    async with serving(engine) as server:
        assert (await post(server, "responses", again)).status_code == 200
        assert requested(engine).messages[1] == Message("assistant", "", "Hm.")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("messages", {"mcp_servers": [{"type": "url", "url": "http://127.0.0.1:1/", "name": "x"}]}),
        ("messages", {"container": "c"}),
        *(
            ("chat/completions", {name: value})
            for name, value in {
                "min_tokens": 5,
                "stop_token_ids": [3],
                "bad_words": ["x"],
                "allowed_token_ids": [1],
                "prompt_logprobs": 1,
                "documents": [{"text": "x"}],
                "chat_template": "{{ x }}",
                "use_beam_search": True,
                "best_of": 2,
                "echo": True,
                "suffix": "x",
                "typical_p": 0.5,
                "modalities": ["text", "audio"],
            }.items()
        ),
        ("responses", {"prompt": {"id": "x"}}),
        ("messages", {"n": 2}),
    ],
    ids=str,
)
async def test_fields_that_matter_are_refused_by_name(engine: FakeEngine, path: str, fields: Any) -> None:
    (name,) = fields
    async with serving(engine) as server:
        found = await post(server, path, on(path, **fields))
        assert found.status_code == 400
        assert found.json()["error"]["message"] == f"{name} is not supported by specchat serve. Leave it out."


async def test_fields_that_ask_for_nothing_and_other_names_are_taken(engine: FakeEngine) -> None:
    neutral = {"n": 1, "best_of": 1, "min_tokens": 0, "bad_words": [], "typical_p": 1.0, "modalities": ["text"]}
    async with serving(engine) as server:
        body = {"messages": HI, **neutral, "n_predict": 7, "repeat_penalty": 1.5, "ignore_eos": True}
        assert (await post(server, "chat/completions", body)).status_code == 200
        request = requested(engine)
        assert (request.limits.max_tokens, request.limits.ignore_eos) == (7, True)
        assert request.sampling.repetition_penalty == 1.5
        held = {"output_format": {"type": "json_schema", "schema": SCHEMA}, "stop_sequences": ["fin"]}
        assert (await post(server, "messages", on("messages", **held))).status_code == 200
        assert requested(engine).grammar == Grammar("json_schema", json.dumps(SCHEMA))
        assert requested(engine).limits.stop == ("fin",)
        wide = {"input": "hi", "truncation": "auto", "stop": "fin", "include": ["message.output_text.logprobs"]}
        assert (await post(server, "responses", wide)).json()["truncation"] == "auto"
        request = requested(engine)
        assert (request.limits.context, request.limits.stop, request.logprobs) == ("drop-oldest", ("fin",), 0)


@pytest.mark.parametrize(
    ("path", "first"), [("chat/completions", ":\n"), ("responses", ":\n"), ("messages", "event: ping")]
)
async def test_a_client_that_waits_hears_that_its_request_is_alive(
    path: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "QUIET_S", 0.01)
    engine = FakeEngine(tokens_per_second=1, clock=(clock := Clock()))
    body = on(path, stream=True)
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        holding = asyncio.create_task(data(server, "chat/completions", on("chat/completions")))
        while not server.served.queue.running:
            await asyncio.sleep(0)
        async with client.stream("POST", f"{server.url}/v1/{path}", json=body) as stream:
            seen = ""
            async for text in stream.aiter_text():
                seen += text
                if seen.count(first) > 1:
                    clock.now += 99.0
                if "Hello" in seen:
                    break
            assert stream.status_code == 200
        if path == "messages":
            assert seen.index("event: ping") < seen.index("message_start") < seen.index("Hello")
        await holding


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
NAMED = "[image left out: it cannot be read here]"


async def test_a_chat_goes_on_after_a_picture_and_one_that_is_asked_about_is_refused(engine: FakeEngine) -> None:
    """Agents read pictures by tools, and send all of a chat again."""
    said = {"role": "assistant", "content": "I cannot."}
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a.png"}, PICTURE]}
    chat = [{"role": "user", "content": [PICTURE, {"type": "text", "text": "What is it?"}]}, said, *HI]
    agent = [*HI, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    url = {"type": "image_url", "image_url": {"url": "data:x"}}
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    openai_agent = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [url]},
    ]
    openai_chat = [{"role": "user", "content": [url]}, said, *HI]
    item = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    seen = {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": "x"}]}
    async with serving(engine) as server:
        for messages, where, text in (
            (chat, 0, f"{NAMED}\nWhat is it?"),
            (agent, 2, f"a.png\n{NAMED}"),
        ):
            body = {"messages": messages, "max_tokens": 9, "tools": ANTHROPIC}
            assert (await post(server, "messages", body)).status_code == 200
            assert requested(engine).messages[where].content == text
        for messages, where in ((openai_chat, 0), (openai_agent, 2)):
            found = await post(server, "chat/completions", {"messages": messages, "tools": OPENAI})
            assert (found.status_code, requested(engine).messages[where].content) == (
                200,
                NAMED.replace("image", "image_url"),
            )
        assert (await post(server, "responses", {"input": [*HI, item, seen]})).status_code == 200
        assert requested(engine).messages[2].content == NAMED.replace("image", "input_image")
        for path, messages in (("messages", chat[:1]), ("chat/completions", openai_chat[:1])):
            found = await post(server, path, {"messages": messages, "max_tokens": 9})
            assert (found.status_code, "type image" in found.text) == (400, True)


async def test_of_allowed_tools_the_model_sees_these_alone(engine: FakeEngine) -> None:
    other = {**FUNCTION, "name": "write"}
    allowed = {"mode": "required", "tools": [{"type": "function", "name": "look"}]}
    nested = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]}
    async with serving(engine) as server:
        tools: list[Any] = [{"type": "function", **FUNCTION}, {"type": "function", **other}]
        choice = {"type": "allowed_tools", **allowed}
        assert (await post(server, "responses", on("responses", tools=tools, tool_choice=choice))).status_code == 200
        assert [tool.name for tool in requested(engine).tools] == ["look"]
        assert requested(engine).tool_choice == "required"
        tools = [*OPENAI, {"type": "function", "function": other}]
        body = on("chat", tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": nested})
        assert (await post(server, "chat/completions", body)).status_code == 200
        assert [tool.name for tool in requested(engine).tools] == ["look"]
        assert requested(engine).tool_choice == "auto"
