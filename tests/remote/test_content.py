"""Content in parts, content that is no text, and text that is no Unicode."""

import json
from typing import Any

import pytest

from specchat.engine.protocol.events import AwaitingServer, Failed, Finished
from specchat.engine.protocol.options import Message, Tool, ToolCall
from tests.remote.conftest import Chatting
from tests.remote.server import CHAT, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
MODELS = {"data": [{"id": "m"}]}
END = delta("", "stop")


def event(**fields: Any) -> str:
    """An event whose delta has these fields."""
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': fields}]})}\n\n"


def part(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, kind: value}


@pytest.mark.parametrize(
    ("stream", "answer", "thoughts"),
    [
        (event(content=[part("text", "Hello."), "!"]), "Hello.!", ""),
        (
            event(content=[part("thinking", [part("text", "Hmm.")])]) + event(content=[part("text", "Yes.")]),
            "Yes.",
            "Hmm.",
        ),
        (event(content=[part("thinking", "Hmm."), part("text", "Yes.")]), "Yes.", "Hmm."),
        (
            event(content=[{"type": "reasoning", "text": "Hmm."}, {"type": "output_text", "text": "Yes."}]),
            "Yes.",
            "Hmm.",
        ),
        (event(content=part("text", "Yes.")), "Yes.", ""),
        (event(content=None, refusal="I cannot."), "I cannot.", ""),
        (event(reasoning=[part("text", "Hmm.")]) + event(content="Yes."), "Yes.", "Hmm."),
    ],
)
def test_content_may_come_in_parts(stream: str, answer: str, thoughts: str, chatting: Chatting) -> None:
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(stream + END)}) as one:
        chatting.load(one.url)
        last = chatting.ask()[-1]
    assert isinstance(last, Finished), last
    assert (last.written.answer, last.written.thoughts) == (answer, thoughts)


IMAGE = event(content=[{"type": "image\x1b_url", "image_url": {"url": "data:"}}])


@pytest.mark.parametrize(
    ("content", "named"), [(IMAGE, "image␛_url"), (event(content=[[{}]]), "dict"), (event(content=5), "int")]
)
def test_a_reply_without_any_text_is_an_error(content: str, named: str, chatting: Chatting) -> None:
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(content + END)}) as one:
        chatting.load(one.url)
        last = chatting.ask()[-1]
    assert isinstance(last, Failed)
    assert last.message == f"{one.url} answered with content of the type {named}, not with text."


def test_what_is_left_out_of_a_reply_is_said_once(chatting: Chatting) -> None:
    stream = delta("Look:") + IMAGE + IMAGE + END
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "Look:"
    assert [event.why for event in events if isinstance(event, AwaitingServer)] == [
        f"{one.url} sent content of the type image␛_url, which is left out"
    ]


def test_half_a_character_is_sent_as_its_substitute(chatting: Chatting) -> None:
    tool = Tool("weather", "\ud83d", '{"type": "object", "title": "\\ud83d"}')
    calls = (ToolCall("c", "weather", '{"city": "\ud83d"}'),)
    chat = (Message("user", "a \ud83d b"), Message("assistant", "", tool_calls=calls), Message("tool", "\ude00"))
    with serving(v1__models=MODELS, **{CHAT_KEY: lambda call: call.send(delta("Yes.") + END)}) as one:
        chatting.load(one.url)
        last = chatting.ask(messages=chat, tools=(tool,))[-1]
    assert isinstance(last, Finished), last
    body = one.of(CHAT)[0].body
    assert [message["content"] for message in body["messages"]] == ["a \ufffd b", "", "\ufffd"]
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": "\ufffd"}'
    function = body["tools"][0]["function"]
    assert (function["description"], function["parameters"]["title"]) == ("\ufffd", "\ufffd")
