"""The events and the body of a response, as they are written."""

import json
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.events import Finished, Started, Step, TokenLogprob
from specchat.engine.protocol.options import Message, Speculation, Written
from specchat.engine.protocol.stats import Stats
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat
from specchat.serve.generation import NO_CHAT
from specchat.serve.response_events import ResponseWriter
from specchat.serve.tools import ToolUse
from tests.fake_steps import steps
from tests.serve.test_tools import CALLING, CALLS

STARTED = Started(1, 3, 0, 7, Speculation())


def read(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def written(writer: ResponseWriter, some: list[Step], last: Finished) -> list[dict[str, Any]]:
    return read(writer.begin(STARTED) + "".join(map(writer.step, some)) + writer.end(last))


def test_a_reply_without_text_has_an_empty_message_and_its_figures() -> None:
    writer = ResponseWriter({"model": "m"}, NO_CHAT, lambda *_: None)
    last = written(writer, [], Finished(1, "stop", "", (), Stats(9, 4, 1)))[-1]["response"]
    assert [(item["type"], item["content"][0]["text"]) for item in last["output"]] == [("message", "")]
    assert (last["seed"], last["usage"]["output_tokens_details"]) == (7, {"reasoning_tokens": 0})
    assert last["usage"]["input_tokens_details"]["cached_tokens"] == 4


def test_what_is_kept_has_the_calls_that_the_client_got() -> None:
    kept: list[Message] = []
    writer = ResponseWriter({"model": "m"}, Chat((), "", ToolUse(parallel=False)), lambda _, reply: kept.append(reply))
    written(writer, list(steps(CALLING)), Finished.of(1, "stop", CALLING, (), Stats()))
    assert [reply.tool_calls for reply in kept] == [CALLS[:1]]


def test_a_failure_has_the_code_that_clients_know() -> None:
    writer = ResponseWriter({"model": "m"}, NO_CHAT, lambda *_: None)
    for code, told in (("context_length_exceeded", "context_length_exceeded"), ("", "server_error")):
        (failed,) = read(writer.failed(ApiError(400, "Too long.", code=code)))
        assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", told)


def test_a_summary_has_events_of_its_own() -> None:
    writer = ResponseWriter({"model": "m", "reasoning": {"summary": "auto"}}, NO_CHAT, lambda *_: None)
    some = list(steps(Written.of([("Hm.", True)]), accepted=(0,)))
    kinds = [event["type"] for event in written(writer, some, Finished(1, "stop", "Hm.", (), Stats()))]
    part = "response.reasoning_summary_part"
    assert [kind for kind in kinds if "part" in kind] == [f"{part}.added", f"{part}.done"]


def test_all_tokens_of_an_answer_after_reasoning_have_their_log_probabilities() -> None:
    """The first step of an answer may end the reasoning; later ones have tokens without text, too."""
    (thought,) = steps(Written.of([("Hm.", True), ("One", False)]), accepted=(9,), length=9)
    (said,) = steps("!", accepted=(0,))
    told = [[b"Hm", b".", b"One"], [b"</s>", b"!"]]
    some = [
        replace(step, logprobs=tuple(TokenLogprob(text, -1.0) for text in texts))
        for step, texts in zip((thought, said), told, strict=True)
    ]
    writer = ResponseWriter({"model": "m"}, NO_CHAT, lambda *_: None)
    body = written(writer, some, Finished(1, "stop", "Hm.One!", (), Stats(), ((0, 3),)))[-1]["response"]
    assert [one["token"] for one in body["output"][1]["content"][0]["logprobs"]] == ["One", "</s>", "!"]
