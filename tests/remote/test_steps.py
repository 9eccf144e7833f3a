"""The steps and figures of recorded replies are those that the servers counted."""

import json
from typing import Any

import pytest

from specchat.engine.protocol.events import Failed, Finished, Started, Step
from specchat.engine.protocol.options import Speculation, Written
from specchat.remote.openai import Chunk
from specchat.remote.steps import Steps
from tests.remote.conftest import Chatting, text_of
from tests.remote.server import CHAT, PAGES, delta, serving

LLAMA = {"v1__models": "llamacpp-draft-models.json", "props": "llamacpp-draft-props.json"}
VLLM = {"v1__models": "vllm-models.json", "metrics": "vllm-metrics.txt"}
CHAT_KEY = CHAT.strip("/").replace("/", "__")


def recorded(page: str) -> tuple[str, dict[str, Any]]:
    """The text of a recorded stream, and its last event."""
    lines = (PAGES / page).read_text("utf-8").splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return "".join(each.get("content") or "" for each in deltas), events[-1]


@pytest.mark.parametrize("drafted", ["draft", "none"])
def test_llama_cpp_tells_each_step(drafted: str, chatting: Chatting) -> None:
    text, last = recorded(f"llamacpp-{drafted}-stream.txt")
    with serving(
        **LLAMA, slots=f"llamacpp-{drafted}-slots.json", **{CHAT_KEY: f"llamacpp-{drafted}-stream.txt"}
    ) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
    assert (info.server.name, info.context, info.target.parameters) == ("llama.cpp's server", 1024, 6_689_024)
    started, finished = events[0], events[-1]
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    stats, timings = finished.stats, last["timings"]
    assert finished.text == text == text_of(events)
    assert finished.reason == "length"
    assert (stats.num_draft_tokens, stats.num_accepted_draft_tokens) == (
        timings.get("draft_n", 0),
        timings.get("draft_n_accepted", 0),
    )
    assert stats.completion_tokens == timings["predicted_n"] == 48
    assert started.prompt_tokens == timings["prompt_n"] == 12
    assert stats.verify_ms == pytest.approx(timings["predicted_ms"], abs=0.01)
    assert stats.tokens_per_second == pytest.approx(1e3 * 47 / timings["predicted_ms"], rel=1e-3)
    assert stats.speedup_vs_plain is None
    steps = [event for event in events if isinstance(event, Step)]
    if drafted == "none":
        assert started.speculation == Speculation()
        assert {(step.drafted, step.emitted, step.strategy) for step in steps} == {(0, 1, "plain")}
        return
    assert started.speculation.strategy == "server"
    assert all(step.emitted == step.accepted + 1 for step in steps[:-1])
    assert all(step.tested == min(step.accepted + 1, step.drafted) for step in steps)
    for step in steps:
        assert "".join(piece.text for piece in step.pieces if piece.source == "server") == "".join(
            draft.text for draft in step.drafts
        )
        assert [piece.position for piece in step.pieces] == list(range(step.emitted))
    assert steps[-1].context_used == 60


def test_vllm_tells_steps_by_chunks_and_drafts_at_the_end(chatting: Chatting) -> None:
    text, last = recorded("vllm-draft-stream.txt")
    counted = last["metrics"]["speculative_decoding"]
    with serving(**VLLM, **{CHAT_KEY: "vllm-draft-stream.txt"}) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
    assert (info.server.name, info.context) == ("vLLM", 1024)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.text == text == text_of(events)
    stats = finished.stats
    assert (stats.num_draft_tokens, stats.num_accepted_draft_tokens) == (48, 38)
    assert stats.per_step_accepted == tuple(counted["per_step_accepted"])
    assert stats.acceptance_histogram == tuple(counted["acceptance_histogram"])
    assert stats.draft_acceptance_rate == counted["draft_acceptance_rate"]
    assert stats.tokens_per_second == pytest.approx(last["metrics"]["tokens_per_second"], rel=0.05)
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.emitted for step in steps[1:]] == [5, 5, 5, 5, 1, 5, 5, 5, 3, 5, 1, 2]
    assert {step.drafted for step in steps[1:]} == {4}
    assert steps[0].drafted == 0


def test_vllm_tells_steps_by_token_ids(chatting: Chatting) -> None:
    with serving(**VLLM, **{CHAT_KEY: "vllm-eagle3-ids-stream.txt"}) as one:
        chatting.load(one.url)
        events = chatting.ask()
        (call,) = one.of(CHAT)
    assert call.body["return_token_ids"] is True
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.stats.prompt_tokens == 12
    assert finished.stats.per_step_accepted == (4, 3, 0, 2)
    assert [event.emitted for event in events if isinstance(event, Step)] == [1, 5, 4, 1, 1]


def metrics(drafts: int, drafted: int, accepted: int, tokens: int = 0) -> str:
    names = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    lines = [f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="m"}} {n}.0' for name, n in names.items()]
    at = [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{n}"}} 1.0' for n in range(4)]
    written = f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0'
    return "\n".join(["# HELP vllm:spec_decode_num_drafts_total Number.", *lines, *at, written, ""])


@pytest.mark.parametrize("others", [0, 30])
def test_vllm_counts_drafts_in_its_metrics(others: int, chatting: Chatting) -> None:
    """Where another client drew on the server meanwhile, the steps count."""
    pages = iter([metrics(10, 40, 20), metrics(10, 40, 20), metrics(14, 52 + others, 29 + others)])
    usage = {"prompt_tokens": 12, "completion_tokens": 12}
    ids = [[5], [5] * 5, [5] * 4, [5], [5]]
    parts = [
        f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': 'x' * len(each)}, 'token_ids': each}]})}\n\n"
        for each in ids
    ]
    stream = "".join([*parts, delta("", "length"), f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"])
    plain = "Content-Type: text/plain\r\n"
    with serving(
        v1__models="vllm-models.json",
        metrics=lambda call: call.send(next(pages), headers=plain),
        **{CHAT_KEY: lambda call: call.send(stream)},
    ) as one:
        chatting.load(one.url)
        finished = chatting.ask()[-1]
    assert isinstance(finished, Finished)
    stats = finished.stats
    counted = (stats.num_spec_steps, stats.num_draft_tokens, stats.num_accepted_draft_tokens)
    assert counted == ((4, 16, 7) if others else (4, 12, 9))


def test_vllm_with_n_grams_does_not_draft_every_step(chatting: Chatting) -> None:
    """By its counts, which the steps of one token do not tell."""
    pages = iter([metrics(6, 24, 6), metrics(6, 24, 6, tokens=60), metrics(8, 32, 8, tokens=66)])
    ids = [[5], [5], [5, 6, 7], [5], [6]]
    parts = [
        f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': 'x'}, 'token_ids': each}]})}\n\n"
        for each in ids
    ]
    with serving(
        v1__models="vllm-models.json",
        metrics=lambda call: call.send(next(pages), headers="Content-Type: text/plain\r\n"),
        **{CHAT_KEY: lambda call: call.send("".join([*parts, delta("", "stop")]))},
    ) as one:
        chatting.load(one.url)
        events = chatting.ask()
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert [event.drafted for event in events if isinstance(event, Step)] == [0, 0, 4, 0, 0]
    stats = finished.stats
    assert (stats.num_spec_steps, stats.num_draft_tokens, stats.num_accepted_draft_tokens) == (2, 8, 2)
    assert (stats.acceptance_histogram, stats.per_step_accepted) == ((1, 0, 1), ())
    assert stats.num_tested_draft_tokens == 4


def test_an_older_llama_cpp_tells_sums_at_the_end(chatting: Chatting) -> None:
    timings = {"cache_n": 0, "prompt_n": 12, "predicted_n": 5, "predicted_ms": 9.0, "draft_n": 4, "draft_n_accepted": 3}
    stream = "".join([*(delta(f" {n}") for n in range(5)), delta("", "stop", timings=timings)])
    with serving(**LLAMA, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        finished = chatting.ask()[-1]
    assert isinstance(finished, Finished)
    stats = finished.stats
    assert (stats.num_draft_tokens, stats.num_accepted_draft_tokens, stats.mean_acceptance_length) == (4, 3, 2.5)
    assert (stats.prompt_tokens, stats.completion_tokens) == (12, 5)


@pytest.mark.parametrize(
    ("counts", "emitted"),
    [((1, 2, 3, 3), [1, 1, 1]), ((1, 2, 5, 5), [1, 1, 3]), ((1, 2, 2, 2), [1, 1])],
    ids=["the end token", "a stop string that was held back", "none"],
)
def test_tokens_without_text_are_counted_as_the_server_counts_them(
    counts: tuple[int, ...], emitted: list[int], chatting: Chatting
) -> None:
    told = [{"predicted_n": n, "predicted_ms": 2.0 * n, "prompt_n": 12, "cache_n": 0} for n in counts]
    parts = [
        delta(text, ends, timings=each)
        for text, ends, each in zip("ab  ", (None, None, "stop", None), told, strict=True)
    ]
    with serving(**LLAMA, **{CHAT_KEY: lambda call: call.send("".join(parts).replace('"content": " "', ""))}) as one:
        chatting.load(one.url)
        *events, finished = chatting.ask()
    steps = [event for event in events if isinstance(event, Step)]
    assert isinstance(finished, Finished)
    assert (text_of(events), [step.emitted for step in steps]) == ("ab", emitted)
    assert sum(emitted) == finished.stats.completion_tokens == counts[-1]
    assert finished.stats.verify_ms == pytest.approx(2.0 * counts[-1])


def test_the_count_of_a_server_that_does_not_count_along_makes_no_step(chatting: Chatting) -> None:
    usage = {"usage": {"prompt_tokens": 12, "completion_tokens": 900}}  # reasoning that is not sent
    stream = "".join([delta("a"), delta("b"), delta("", "stop", **usage)])
    with serving(
        v1__models={"data": [{"id": "m", "owned_by": "vllm"}]}, **{CHAT_KEY: lambda call: call.send(stream)}
    ) as one:
        chatting.load(one.url)
        *events, finished = chatting.ask()
    assert isinstance(finished, Finished)
    assert [event.emitted for event in events if isinstance(event, Step)] == [1, 1]
    assert finished.stats.completion_tokens == 900


def test_vllm_without_drafting_says_so(chatting: Chatting) -> None:
    with serving(v1__models="vllm-models.json", metrics="vllm-none-metrics.txt") as one:
        info = chatting.load(one.url)
    assert info.notes.note == "demo: this server was started without drafting"


def test_sglang_tells_drafts_at_the_end(chatting: Chatting) -> None:
    """By the fields of its source: no recording of it is at hand."""
    usage = [{"prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens} for tokens in (1, 4, 6)]
    details = {
        "spec_verify_ct": 2,
        "spec_num_proposed_drafts": 6,
        "spec_num_correct_drafts": 3,
        "spec_correct_drafts_histogram": [0, 1, 1, 0],
    }
    parts = [
        delta("One", usage=usage[0]),
        delta(" two three four", usage=usage[1]),
        delta(" five six", "stop", usage=usage[2]),
        f"data: {json.dumps({'choices': [], 'usage': usage[2], 'sglext': {'spec_tokens_details': details}})}\n\n",
        "data: [DONE]\n\n",
    ]
    models = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 4096}]}
    settings = {"speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": 4}
    with serving(v1__models=models, server_info=settings, **{CHAT_KEY: lambda call: call.send("".join(parts))}) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
        (call,) = one.of(CHAT)
    assert (info.server.name, info.context) == ("SGLang", 4096)
    assert (call.body["return_spec_tokens_details"], call.body["top_k"]) == (True, -1)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.text == "One two three four five six"
    stats = finished.stats
    assert (stats.num_draft_tokens, stats.num_accepted_draft_tokens, stats.num_spec_steps) == (6, 3, 2)
    assert stats.acceptance_histogram == (0, 1, 1, 0)
    steps = [event for event in events if isinstance(event, Step)]
    assert [(step.drafted, step.accepted, step.emitted) for step in steps] == [(0, 0, 1), (3, 2, 3), (3, 1, 2)]


def test_reasoning_is_told_from_the_answer_by_either_name(chatting: Chatting) -> None:
    def thought(name: str, words: str) -> str:
        return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {name: words}}]})}\n\n"

    stream = "".join(
        [thought("reasoning", "So "), thought("reasoning_content", "then."), delta("Yes."), delta("", "stop")]
    )
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        info = chatting.load(one.url)
        events = chatting.ask()
    assert info.server.name == "a server with OpenAI's API"
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.written.thoughts, finished.written.answer, finished.reason) == ("So then.", "Yes.", "stop")
    assert finished.stats.num_draft_tokens == 0


@pytest.mark.parametrize("repeats", [True, False])
def test_a_beginning_is_there_once(repeats: bool, chatting: Chatting) -> None:
    begun = "It was a dark and stormy night in the hotel"
    stream = "".join([delta(begun if repeats else ""), delta(" of"), delta(" cats."), delta("", "stop")])
    with serving(**LLAMA, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask(begun=Written(begun))
        assert one.of(CHAT)[0].body["messages"][-1] == {"role": "assistant", "content": begun}
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.text == f"{begun} of cats."
    assert text_of(events) == " of cats."


def test_each_token_keeps_its_source_in_any_script(chatting: Chatting) -> None:
    parts, counts = ["\u4f60", "\u597d", "\u4e16", "\u754c", "!"], [(0, 0), (3, 2), (3, 2), (3, 2), (3, 2)]
    timings = [
        {"predicted_n": n, "predicted_ms": float(min(n, 2) + (n > 4)), "draft_n": drafted, "draft_n_accepted": accepted}
        for n, (drafted, accepted) in enumerate(counts, 1)
    ]
    stream = "".join(delta(part, timings=each) for part, each in zip(parts, timings, strict=True)) + delta("", "stop")
    with serving(**LLAMA, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    pieces = [(piece.text, piece.source) for event in events if isinstance(event, Step) for piece in event.pieces]
    assert pieces == [
        ("\u4f60", "plain"),
        ("\u597d", "server"),
        ("\u4e16", "server"),
        ("\u754c", "target"),
        ("!", "plain"),
    ]


@pytest.mark.parametrize(
    "cut", [("e", "\u0301 fin"), ("\U0001f469", "\u200d\U0001f680!"), ("x\U0001f1eb", "\U0001f1f7")]
)
def test_pieces_are_whole_graphemes(cut: tuple[str, str], chatting: Chatting) -> None:
    """But for a mark that follows an ASCII letter, which is released at once, as in specchat's own engine."""
    stream = "".join([*(delta(part) for part in cut), delta("", "stop")])
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    pieces = [piece.text for event in events if isinstance(event, Step) for piece in event.pieces]
    assert "".join(pieces) == "".join(cut)
    if not cut[0][-1].isascii():
        assert len(pieces[-1]) > 1


@pytest.mark.parametrize("chunks", [("Fan \ufffd\ufffd",), ("Fan \ufffd", "\ufffd"), ("Fan ", "\ufffd")])
def test_bytes_of_a_character_that_a_server_cut_are_no_text(chunks: tuple[str, ...], chatting: Chatting) -> None:
    stream = "".join([*map(delta, chunks), delta("", "length")])
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        *events, last = chatting.ask()
    assert isinstance(last, Finished)
    assert (last.text, text_of(events)) == ("Fan ", "Fan ")


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        ({"props": "llamacpp-draft-props.json"}, "llama.cpp's server"),
        ({"metrics": "vllm-metrics.txt"}, "vLLM"),
        ({"metrics": lambda call: call.send("# HELP\nsglang:gen_throughput 0.0\n")}, "SGLang"),
        ({"metrics": lambda call: call.send("# HELP\nother 0.0\n")}, "a server with OpenAI's API"),
    ],
)
def test_a_server_that_names_another_owner_is_found_out(pages: dict[str, Any], kind: str, chatting: Chatting) -> None:
    with serving(v1__models={"data": [{"id": "m", "owned_by": "my-company"}]}, **pages) as one:
        assert chatting.load(one.url).server.name == kind


def test_the_server_that_is_asked_for_is_not_looked_for(chatting: Chatting) -> None:
    with serving(v1__models="llamacpp-draft-models.json") as one:
        info = chatting.load(one.url, kind="openai")
    assert info.server.name == "a server with OpenAI's API"
    assert [call.path for call in one.calls] == ["/v1/models"]


def test_a_model_that_is_not_there_is_told_with_those_that_are(chatting: Chatting) -> None:
    with serving(v1__models={"data": [{"id": "qwen-8b"}, {"id": "llama"}]}) as one:
        event = chatting.tried(one.url, model="qwen8b")
    assert isinstance(event, Failed)
    assert (event.kind, event.message) == ("model", f'{one.url} has no model "qwen8b", but qwen-8b.')


@pytest.mark.parametrize(
    ("apart_ms", "server_ms", "speed"), [(20.0, False, 50.0), (0.1, False, 0.0), (0.1, True, 200.0)]
)
def test_chunks_that_come_out_of_a_buffer_tell_no_speed(apart_ms: float, server_ms: bool, speed: float) -> None:
    now = [0.0]
    steps = Steps(1, Written(), lambda: now[0])
    for tokens in range(1, 6):
        now[0] += apart_ms / 1e3
        steps.add(Chunk("word ", tokens=tokens, ms=4.0 * tokens if server_ms else None))
    steps.finish(())
    stats = steps.stats(3, 0, 10.0, None, None, None)
    assert stats.completion_tokens == 5
    assert stats.tokens_per_second == pytest.approx(speed)
