"""Servers that say what is not so: about their model, their context, their counters."""

import json
import re
from typing import Any

import pytest

from specchat.engine.protocol.events import Failed, Finished, Loaded, Started, Step
from specchat.engine.protocol.requests import Cancel
from tests.remote.conftest import Chatting, text_of
from tests.remote.server import CHAT, Call, delta, serving
from tests.remote.test_steps import metrics

CHAT_KEY = CHAT.strip("/").replace("/", "__")
GOOD = delta("Good.") + delta("", "stop")
CONTROL = "q\x1b[31m\u202ewen\nx" + "y" * 5000


def ids(*numbers: int) -> str:
    """Chunks of so many tokens."""
    parts = [
        {"choices": [{"index": 0, "delta": {"content": "x" * number}, "token_ids": [5] * number}]} for number in numbers
    ]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + delta("", "stop")


def test_a_models_name_is_shown_without_its_control_codes(chatting: Chatting) -> None:
    with serving(v1__models={"data": [{"id": CONTROL}]}, **{CHAT_KEY: lambda call: call.send(GOOD)}) as one:
        info = chatting.load(one.url)
        assert text_of(chatting.ask()) == "Good."
        assert one.of(CHAT)[0].body["model"] == CONTROL
        missing = chatting.tried(one.url, model="other")
    assert info.notes.note.isprintable()
    assert len(info.notes.note) < 200
    assert isinstance(missing, Failed)
    assert missing.message.isprintable()


@pytest.mark.parametrize(
    "said",
    [
        {"max_model_len": -5},
        {"max_model_len": True},
        {"max_model_len": 1e300},
        {"max_model_len": "many", "meta": 5, "aliases": 7},
        {"owned_by": ["vllm"], "id": "m"},
    ],
)
def test_what_is_no_number_counts_as_unknown(said: dict[str, Any], chatting: Chatting) -> None:
    with serving(v1__models={"data": [{"id": "m", **said}]}, **{CHAT_KEY: lambda call: call.send(GOOD)}) as one:
        info = chatting.load(one.url)
        assert text_of(chatting.ask()) == "Good."
    assert info.context == 0


def test_an_answer_by_another_model_is_said(chatting: Chatting) -> None:
    """The text stays: a gateway may name a version."""
    stream = delta("Yes.", model="other\x1b[2J") + delta("", "stop", model="other\x1b[2J")
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    assert text_of(events) == "Yes."
    said = [getattr(event, "why", "") for event in events]
    assert [words for words in said if words] == [f'{one.url} answers as "other␛[2J", not as "m"']


def test_counters_of_other_names_are_not_taken_for_no_drafting(chatting: Chatting) -> None:
    page = metrics(10, 40, 20).replace("spec_decode_num_", "spec_decode_")

    def send(call: Call) -> None:
        call.send(page, headers="Content-Type: text/plain\r\n")

    chat = {CHAT_KEY: lambda call: call.send(ids(1, 4, 2))}
    with serving(v1__models="vllm-models.json", metrics=send, **chat) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
    started, last = events[0], events[-1]
    assert info.notes.note.endswith("/metrics names its counters otherwise")
    assert isinstance(started, Started)
    assert started.speculation.strategy == "server"
    assert isinstance(last, Finished)
    assert last.stats.num_accepted_draft_tokens == 4


@pytest.mark.parametrize(
    "after", ["# nothing\n", re.sub(r"\d+\.0", "nan", metrics(14, 52, 29)), metrics(0, 0, 0), "\xff"]
)
def test_counters_that_change_in_between_are_left(after: str, chatting: Chatting) -> None:
    pages = iter([metrics(10, 40, 20), metrics(10, 40, 20), after])

    def send(call: Call) -> None:
        call.send(next(pages).encode("latin-1"), headers="Content-Type: text/plain\r\n")

    chat = {CHAT_KEY: lambda call: call.send(ids(1, 5, 3))}
    with serving(v1__models="vllm-models.json", metrics=send, **chat) as one:
        chatting.load(one.url)
        last = chatting.ask()[-1]
    assert isinstance(last, Finished)
    assert (last.stats.num_draft_tokens, last.stats.num_accepted_draft_tokens) == (8, 6)


def test_a_flood_of_comments_can_be_stopped(chatting: Chatting) -> None:
    left: list[bool] = []

    def floods(call: Call) -> None:
        call.send(delta("One"))
        try:
            while True:
                call.link.sendall(b": ping\n\n" * 1000)
        except OSError:
            left.append(True)

    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: floods}) as one:
        chatting.load(one.url)
        chatting.send()
        chatting.until(Step)
        chatting.engine.send(Cancel(1))
        last = chatting.until(Finished)[-1]
        assert isinstance(last, Finished)
        assert (last.text, last.reason) == ("One", "cancelled")
        one.pages[CHAT] = lambda call: call.send(GOOD)
        assert text_of(chatting.ask(2)) == "Good."
    assert left == [True]


def test_a_list_without_end_is_a_sentence(chatting: Chatting, monkeypatch: pytest.MonkeyPatch) -> None:
    from specchat.remote import connection

    monkeypatch.setattr(connection, "MAX_BODY_BYTES", 1 << 20)

    def endless(call: Call) -> None:
        call.send('{"data": [', headers="Content-Type: application/json\r\n")
        try:
            while True:
                call.link.sendall(b'{"id": "m"},' * 1000)
        except OSError:
            return

    with serving(v1__models=endless) as one:
        event = chatting.tried(one.url)
        assert isinstance(event, Failed)
        assert "answered with no JSON" in event.message
        one.pages["/v1/models"] = {"data": [{"id": "m"}]}
        assert isinstance(chatting.tried(one.url), Loaded)
