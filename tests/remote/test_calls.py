"""Tool calls and schemas: requests in OpenAI's form, and calls that streams send in pieces."""

import json
from dataclasses import replace
from typing import Any

import pytest

from specchat.engine.protocol.events import Failed, Finished, Step
from specchat.engine.protocol.options import Message, Tool, ToolCall
from tests.remote.conftest import Chatting
from tests.remote.server import CHAT, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
MODELS = {"data": [{"id": "m"}]}
SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'
WEATHER = Tool("weather", "Tells the weather.", SCHEMA)


def piece(*calls: dict[str, Any], ends: str | None = None) -> str:
    choice = {"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": ends}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def begun(index: int, name: str, arguments: str = "", id_: str = "c0") -> dict[str, Any]:
    return {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def further(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


def ended(chatting: Chatting, stream: str, **fields: Any) -> tuple[Finished, list[Step], Any]:
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask(tools=(WEATHER,), **fields)
        body = one.of(CHAT)[-1].body
    last = events[-1]
    assert isinstance(last, Finished), last
    return last, [event for event in events if isinstance(event, Step)], body


def test_calls_come_in_pieces(chatting: Chatting) -> None:
    stream = "".join(
        [
            delta("Let me look."),
            piece(begun(0, "weather")),
            piece(further(0, '{"city": '), begun(1, "weather", '{"city": "Rome"}', "c1")),
            piece(further(0, '"Oslo"}')),
            piece(ends="tool_calls"),
        ]
    )
    last, steps, body = ended(chatting, stream)
    calls = (ToolCall("c0", "weather", '{"city": "Oslo"}'), ToolCall("c1", "weather", '{"city": "Rome"}'))
    assert (last.text, last.tool_calls, last.reason, last.unreadable_calls) == ("Let me look.", calls, "stop", 0)
    assert [step.tool_calls for step in steps if step.tool_calls] == [calls]
    assert sum(step.emitted for step in steps) == 4  # a chunk counts as a token here
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Tells the weather.", "parameters": json.loads(SCHEMA)},
        }
    ]
    assert body["tool_choice"] == "auto"


OSLO, ROME = ToolCall("a", "weather", '{"city": "Oslo"}'), ToolCall("b", "news", '{"city": "Rome"}')


def whole(call: ToolCall, **fields: Any) -> dict[str, Any]:
    """A call in one piece."""
    return {**fields, "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [({"index": 0}, {"index": 0}), ({}, {}), ({"index": None}, {"index": None}), ({"index": "0"}, {"index": "1"})],
    ids=["one index", "no index", "null", "text"],
)
@pytest.mark.parametrize("name", ["news", "weather"])
def test_calls_are_told_apart_without_numbers(
    name: str, first: dict[str, Any], second: dict[str, Any], together: bool, chatting: Chatting
) -> None:
    rome = replace(ROME, name=name)
    calls = [whole(OSLO, **first), whole(rome, **second)]
    stream = piece(*calls) if together else "".join(map(piece, calls))
    last, _, _ = ended(chatting, stream + piece(ends="tool_calls"))
    assert last.tool_calls == (OSLO, rome)


@pytest.mark.parametrize(
    ("ids", "index"),
    [(["a", "b", "c"], {"index": 0}), (["a", "a", "a"], {}), (["", "", ""], {})],
    ids=["an id each time", "repeated", "no id"],
)
def test_pieces_that_repeat_the_name_are_one_call(ids: list[str], index: dict[str, int], chatting: Chatting) -> None:
    """Some servers send a named tool so: each piece has the name and an id of its own, the last one no text."""
    pieces = zip(ids, ('{"city": ', '"Oslo"}', ""), strict=True)
    stream = "".join(piece(whole(ToolCall(id_, "weather", part), **index)) for id_, part in pieces)
    last, _, _ = ended(chatting, stream + piece(ends="tool_calls"))
    assert [(call.name, call.arguments) for call in last.tool_calls] == [("weather", OSLO.arguments)]


def test_arguments_may_come_as_json(chatting: Chatting) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    last, _, _ = ended(chatting, piece(call) + piece(ends="tool_calls"))
    assert last.tool_calls == (OSLO,)


def test_half_a_character_in_a_call_can_be_sent_back(chatting: Chatting) -> None:
    last, _, _ = ended(chatting, piece(begun(0, "weather", '{"city": "\ud83d"}')) + piece(ends="tool_calls"))
    assert [call.arguments for call in last.tool_calls] == ['{"city": "\ufffd"}']
    again = (Message("assistant", "", tool_calls=last.tool_calls), Message("tool", "No.", tool_call_id="c0"))
    ended(chatting, delta("Yes.") + delta("", "stop"), messages=(Message("user", "Rain?"), *again))


def test_a_reply_may_be_a_call_alone(chatting: Chatting) -> None:
    last, steps, body = ended(
        chatting, piece(begun(0, "weather", "")) + piece(ends="tool_calls"), tool_choice="weather"
    )
    assert (last.text, last.tool_calls) == ("", (ToolCall("c0", "weather", "{}"),))
    assert steps[-1].tool_calls == last.tool_calls
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    "call",
    [
        begun(0, "weather", '"Oslo"'),
        {**begun(0, "weather"), "function": {"name": "weather", "arguments": ["Oslo"]}},
        begun(0, "weather", '{"city": '),
        begun(0, "", "{}"),
        begun(0, "weather", '{"city": "\ud83d'),
        begun(0, "weather", "[" * 50_000),
        {"index": "x", "function": {"name": 5, "arguments": '{"a": 1}'}},
    ],
)
def test_a_call_that_cannot_be_read_is_text(call: dict[str, Any], chatting: Chatting) -> None:
    last, _, _ = ended(chatting, piece(call) + piece(ends="tool_calls"))
    assert (last.tool_calls, last.unreadable_calls) == ((), 1)
    assert last.text.startswith("weather(" if "name" in str(call) and call["function"]["name"] == "weather" else "(")


@pytest.mark.parametrize("odd", ["x", [None, 5], {"a": 1}, [{"index": -1}], [{"index": 10**9, "function": None}]])
def test_odd_calls_do_no_harm(odd: Any, chatting: Chatting) -> None:
    stream = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': odd}}]})}\n\n"
    last, _, _ = ended(chatting, delta("Yes.") + stream + delta("", "stop"))
    assert last.text.startswith("Yes.")
    assert last.tool_calls == ()


def test_a_call_that_breaks_off_is_no_call(chatting: Chatting) -> None:
    stream = delta("Half.") + piece(begun(0, "weather", '{"city": "Oslo"}'))
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask(tools=(WEATHER,))
    assert isinstance(events[-1], Failed)
    assert not [event for event in events if isinstance(event, Step) and event.tool_calls]


def test_results_go_back_with_their_calls(chatting: Chatting) -> None:
    call = ToolCall("c0", "weather", '{"city": "Oslo"}')
    messages = (
        Message("user", "Rain?"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "It rains.", tool_call_id="c0", tool_name="weather"),
    )
    _, _, body = ended(chatting, delta("Yes.") + delta("", "stop"), messages=messages)
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
        {"role": "tool", "content": "It rains.", "tool_call_id": "c0"},
    ]


def test_vllms_own_call_of_a_model_that_cannot_call(chatting: Chatting) -> None:
    """Recorded: vLLM 0.32 does not hold the arguments to the tool's schema."""
    with serving(v1__models="vllm-models.json", **{CHAT_KEY: "vllm-tools-stream.txt"}) as one:
        chatting.load(one.url)
        last = chatting.ask(tools=(WEATHER,), tool_choice="required")[-1]
    assert isinstance(last, Finished)
    assert (last.tool_calls, last.unreadable_calls, last.reason) == ((), 1, "stop")
    assert last.text.startswith('get_weather("I ')
