"""TensorRT-LLM's trtllm-serve by its source's fields: no recording of it is at hand."""

import json
from collections.abc import Callable, Iterator

import pytest

from specchat.engine.protocol.events import Finished, Step
from specchat.remote import trtllm
from tests.remote.conftest import Chatting
from tests.remote.server import CHAT, Call, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
MODELS = {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}


def iteration(drafted: int, accepted: int, requests: int = 1) -> dict[str, object]:
    spec = {
        "numDraftTokens": drafted,
        "numAcceptedTokens": accepted,
        "numRequestsWithDraftTokens": requests,
        "acceptanceLength": 1 + accepted / requests if requests else 0.0,
    }
    return {"iter": 7, "iterLatencyMS": 3.1, "numActiveRequests": requests, "specDecodingStats": spec}


def lists(*pages: list[object]) -> Callable[[Call], None]:
    """Reading the list empties it."""
    left: Iterator[list[object]] = iter(pages)
    return lambda call: call.json(next(left, []))


def stream() -> str:
    """Steps of 1, 4, 1 and 3 tokens; the last one is cut."""
    parts, tokens = [], 0
    for new in (1, 4, 1, 3):
        tokens += new
        usage = {"prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens}
        parts.append(delta(" x" * new, usage=usage))
    usage = {"prompt_tokens": 12, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 4}}
    last = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    return "".join([*parts, delta("", "length"), last, "data: [DONE]\n\n"])


DRAFTS = [iteration(0, 0, 0), iteration(3, 3), iteration(3, 0), {"iter": 1, "specDecodingStats": None}, iteration(3, 3)]


def test_its_list_counts_the_drafts_of_a_reply(chatting: Chatting) -> None:
    metrics = lists([iteration(3, 1)], DRAFTS, [])
    with serving(v1__models=MODELS, metrics=metrics, **{CHAT_KEY: lambda call: call.send(stream())}) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
        (call,) = one.of(CHAT)
        assert len(one.of("/metrics")) == 2
    assert (info.server.name, info.notes.note) == ("TensorRT-LLM", f"m: {trtllm.COUNTED}")
    known = {"messages", "model", "stream", "stream_options", "max_tokens", "seed", "temperature", "top_p", "top_k"}
    # It refuses fields that it does not know.
    assert set(call.body) <= known | {"min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"}
    last = events[-1]
    assert isinstance(last, Finished)
    stats = last.stats
    assert (stats.num_spec_steps, stats.num_draft_tokens, stats.num_accepted_draft_tokens) == (3, 9, 6)
    assert (stats.prompt_tokens, stats.completion_tokens, stats.reused_tokens) == (12, 9, 4)
    assert [event.emitted for event in events if isinstance(event, Step)] == [1, 4, 1, 3]
    assert [event.drafted for event in events if isinstance(event, Step)] == [0, 3, 3, 3]


def test_others_on_the_server_leave_the_steps_to_count(chatting: Chatting) -> None:
    metrics = lists([iteration(3, 1)], [*DRAFTS, iteration(6, 5, 2)])
    with serving(v1__models=MODELS, metrics=metrics, **{CHAT_KEY: lambda call: call.send(stream())}) as one:
        chatting.load(one.url)
        last = chatting.ask()[-1]
    assert isinstance(last, Finished)
    assert (last.stats.num_draft_tokens, last.stats.num_accepted_draft_tokens) == (9, 5)


@pytest.mark.parametrize("page", [None, {"error": "no list"}, []])
def test_a_server_without_a_list_is_read_by_its_chunks(page: object, chatting: Chatting) -> None:
    with serving(v1__models=MODELS, metrics=page, **{CHAT_KEY: lambda call: call.send(stream())}) as one:
        info = chatting.load(one.url)
        for number in (1, 2):
            last = chatting.ask(number)[-1]
        assert len(one.of("/metrics")) <= 2  # a server that keeps none is not asked after each reply
    assert info.notes.note == f"m: {trtllm.UNCOUNTED}"
    assert isinstance(last, Finished)
    assert (last.stats.num_accepted_draft_tokens, last.stats.completion_tokens) == (5, 9)
