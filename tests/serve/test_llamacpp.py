"""Endpoints of llama.cpp's server, by the fields of its own recorded answers."""

import asyncio
import json
from typing import Any

import httpx2

from specchat.engine.protocol.events import Finished, PromptProgress
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.stats import Stats
from specchat.serve.generation import ReplyEvent, ReplyEvents
from specchat.serve.llamacpp import limited
from specchat.serve.queue import RUNNING
from tests.fake import INFO, FakeEngine, steps
from tests.serve.conftest import SOON_S, Server, serving
from tests.serve.test_clients import TEXT, requested
from tests.serve.test_logprobs import STARTED, recorded
from tests.service.made import CATALOG, Clock

LAST = ("id_slot", "model", "tokens_predicted", "tokens_evaluated", "stop_type", "timings")


async def post(server: Server, path: str, **body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=SOON_S) as client:
        return await client.post(f"{server.url}/{path}", json=body)


async def page(server: Server, path: str) -> Any:
    async with httpx2.AsyncClient(timeout=SOON_S) as client:
        return (await client.get(f"{server.url}/{path}")).json()


async def test_a_prompt_is_completed_whole_and_as_a_stream(engine: FakeEngine) -> None:
    body = {"prompt": "Once", "n_predict": 40, "temperature": 0.5, "stop": ["fin"], "cache_prompt": True, "n_probs": 0}
    async with serving(engine) as server:
        whole = (await post(server, "completion", **body, return_tokens=True)).json()
        request = requested(engine)
        assert (request.raw, request.limits.max_tokens, request.limits.stop) == ("Once", 40, ("fin",))
        assert (await post(server, "completion", **body, response_fields=["tokens"])).json() == {"tokens": []}
        bare = (await post(server, "completion", **body, stream=True)).text.splitlines()
        assert ["timings" in line for line in bare if line][-2:] == [False, True]
        streamed = await post(server, "completion", **body, stream=True, timings_per_token=True)
        assert (await post(server, "completion", prompt=[5, 6], n_predict=0)).status_code == 200
        assert (requested(engine).raw, requested(engine).limits.max_tokens) == ((5, 6), 0)
        await post(server, "completion", prompt="Once")
        assert requested(engine).limits.max_tokens is None
        for wrong in ({"prompt": ""}, {**body, "n_probs": 3}, {**body, "stream": True, "return_tokens": True}):
            assert (await post(server, "completion", **wrong)).status_code == 400
    assert (whole["content"], whole["stop"], whole["stop_type"]) == (TEXT, True, "eos")
    assert all(name in whole for name in LAST)
    assert (whole["index"], whole["prompt"], whole["truncated"]) == (0, "Once", False)
    assert len(whole["tokens"]) == whole["tokens_predicted"] == whole["timings"]["predicted_n"]
    *chunks, last = [json.loads(line[6:]) for line in streamed.text.splitlines() if line]
    assert "".join(chunk["content"] for chunk in chunks) == TEXT
    assert [chunk["stop"] for chunk in (*chunks[:1], last)] == [False, True]
    assert chunks[-1]["tokens_predicted"] == last["tokens_predicted"] == whole["tokens_predicted"]
    assert "timings" in chunks[0]
    assert streamed.headers["cache-control"] == "no-cache"
    assert last["content"] == ""


async def test_a_failure_is_the_last_event(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        engine.fail_reply("memory", "out of memory")
        *_, last = (await post(server, "completion", prompt="Once", stream=True)).text.strip().splitlines()
        assert json.loads(last[6:])["error"]["message"] == "out of memory"


async def test_code_is_filled_in_as_editors_ask(engine: FakeEngine) -> None:
    body = {
        "id_slot": 0,
        "input_prefix": "def f(\n",
        "input_suffix": ")\n",
        "input_extra": [{"text": "A = 1", "filename": "a.py", "time": 17}, {"text": "B"}],
        "prompt": "    x",
        "n_predict": 128,
        "top_k": 40,
        "samplers": ["top_k", "infill"],
        "t_max_predict_ms": 500,
    }
    wished = {"response_fields": ["content", "timings/predicted_n", "stop/not", "nothing"]}
    async with serving(engine) as server:
        found = await post(server, "infill", **body)
        assert (found.status_code, found.json()["content"]) == (200, TEXT)
        left = {"content": TEXT, "timings/predicted_n": found.json()["timings"]["predicted_n"]}
        assert (await post(server, "infill", **{**body, **wished})).json() == left
        streamed = await post(server, "infill", **{**body, **wished, "stream": True})
        assert json.loads(streamed.text.splitlines()[-2][6:]) == {**left, "content": ""}
        assert requested(engine).raw == FillIn("def f(\n    x", ")\n", (("a.py", "A = 1"), ("tmp", "B")))
        # Editors have other files read before there is a place to fill in.
        ahead = {**body, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "response_fields": [""]}
        assert (await post(server, "infill", **ahead)).json() == {}
        assert requested(engine).raw == FillIn("", "", (("a.py", "A = 1"), ("tmp", "B")))
        for wrong in ({**ahead, "input_extra": []}, {"input_prefix": "a"}):
            assert (await post(server, "infill", **wrong)).status_code == 400


async def test_several_ways_to_fill_in_come_as_a_list(engine: FakeEngine) -> None:
    body = {"input_prefix": "a", "input_suffix": "b", "seed": 5}
    fields = ["index", "content", "tokens_predicted", "timings/predicted_n", "tokens_cached"]
    async with serving(engine) as server:
        one = (await post(server, "infill", **body, response_fields=fields)).json()
        engine.requests.clear()
        several = (await post(server, "infill", **body, n_cmpl=2, response_fields=fields)).json()
        drawn = [request.sampling.seed for request in engine.requests if isinstance(request, Generate)]
        for wrong in ({"n_cmpl": 2, "stream": True}, {"n_cmpl": 0}, {"n_cmpl": 1_000}):
            assert (await post(server, "infill", **body, **wrong)).status_code == 400
    assert several == [one, {**one, "index": 1}]
    assert (one["content"], len(one)) == (TEXT, len(fields))
    assert drawn == [5, 6]


async def test_further_ways_to_fill_in_are_left_out_after_the_editors_time() -> None:
    clock = Clock()

    async def replies(milliseconds: float) -> ReplyEvents:
        for text in ("one\n", "two\n", "three\n"):
            yield [STARTED]
            clock.now += milliseconds / 1e3
            yield list[ReplyEvent](steps(text))
            yield [Finished(1, "stop", text, (), Stats())]

    async def ended(milliseconds: float) -> list[str]:
        events = [
            event for some in [some async for some in limited(replies(milliseconds), 25, clock)] for event in some
        ]
        return [event.text for event in events if isinstance(event, Finished)]

    assert await ended(5) == ["one\n", "two\n", "three\n"]
    assert await ended(20) == ["one\n"]
    assert await ended(100) == ["one\n"]


async def test_the_editors_time_cuts_a_reply_that_goes_on_alone() -> None:
    clock = Clock()
    last = Finished(1, "stop", "one\n", (), Stats())

    async def late(*texts: str, ends: bool = True) -> ReplyEvents:
        yield [STARTED]
        clock.now += 1.0
        for text in texts:
            yield [*steps(text), *([last] if ends else [])]

    async def told(events: ReplyEvents) -> list[Finished]:
        found = [event for some in [some async for some in limited(events, 25, clock)] for event in some]
        return [event for event in found if isinstance(event, Finished)]

    assert await told(late("one\n")) == [last]
    (cut,) = await told(late("one ", "two\n", "three", ends=False))
    assert (cut.reason, cut.text) == ("length", "one two\n")


async def test_a_reply_ends_after_the_editors_time_once_it_has_a_line() -> None:
    clock = Clock()
    text = "one two\nthree four five six seven eight nine ten eleven twelve"
    engine = FakeEngine((text,), tokens_per_second=1, clock=clock)
    body = {"input_prefix": "a", "input_suffix": "b", "t_max_predict_ms": 0.001}

    async def passing() -> None:
        while True:
            clock.now += 4.0
            await asyncio.sleep(0.02)

    async with serving(engine) as server:
        passes = asyncio.create_task(passing())
        whole = (await post(server, "infill", **body)).json()
        assert (whole["stop_type"], text.startswith(whole["content"])) == ("limit", True)
        assert len(whole["content"]) < len(text)
        assert "\n" in whole["content"]
        for none in (0, -1):
            unlimited = (await post(server, "infill", **{**body, "t_max_predict_ms": none})).json()
            assert (unlimited["stop_type"], unlimited["content"]) == ("eos", text)
        passes.cancel()


async def test_tokens_and_templates_are_told(engine: FakeEngine) -> None:
    chat = [{"role": "user", "content": "one two"}]
    async with serving(engine) as server:
        assert (await post(server, "tokenize", content="one two")).json()["tokens"] == [0, 1]
        assert (await post(server, "tokenize", messages=chat)).json()["count"] == 2
        assert (await post(server, "tokenize", prompt="one two")).json()["tokens"] == [0, 1]
        none = {"tokens": [], "count": 0, "max_model_len": INFO.context}
        assert (await post(server, "tokenize", content="")).json() == none
        assert (await post(server, "tokenize", content="x", with_pieces=True)).status_code == 400
        assert (await post(server, "detokenize", tokens=[4, 5])).json()["content"] == " 4 5"
        assert (await post(server, "detokenize", tokens=[])).json()["content"] == ""
        assert (await post(server, "apply-template", messages=chat)).json() == {"prompt": "<user>one two"}
        assert engine.requests[-1].messages == (Message("user", "one two"),)  # type: ignore[union-attr]


async def test_the_server_tells_its_properties(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        props = await page(server, "props")
        assert props["default_generation_settings"]["n_ctx"] == INFO.context
        assert props["default_generation_settings"]["params"]["temperature"] == CATALOG.pairs[0].sampling.temperature
        assert props["modalities"] == {"vision": False, "audio": False, "video": False}
        assert props["total_slots"] == RUNNING
        slots = await page(server, "slots")
        assert [slot["id"] for slot in slots] == list(range(RUNNING))
        assert slots[0] == {"id": 0, "n_ctx": INFO.context, "speculative": True, "is_processing": False}


async def test_a_client_hears_how_far_its_prompt_is_read() -> None:
    reply = [PromptProgress(1, 50, 100, 20), PromptProgress(1, 90, 100, 20), STARTED, *recorded()[1:]]
    chat = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with serving(FakeEngine((reply,))) as server:
        for path, body in (
            ("v1/chat/completions", chat),
            ("v1/completions", {"prompt": "Once", "stream": True}),
            ("completion", {"prompt": "Once", "stream": True}),
        ):
            for wanted in (True, False):
                text = (await post(server, path, **body, return_progress=wanted)).text
                data = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
                told = [chunk["prompt_progress"] for chunk in data if "prompt_progress" in chunk]
                read = [(one["cache"], one["processed"], one["total"]) for one in told]
                assert read == ([(20, 50, 100), (20, 90, 100)] if wanted else [])
                assert "Once" in text
                if path == "completion":
                    assert (data[0]["content"], data[0]["stop"]) == ("", False) or not wanted
                    last, read_tokens = data[-1], STARTED.prompt_tokens - STARTED.reused
                    assert (last["tokens_evaluated"], last["timings"]["prompt_n"]) == (
                        STARTED.prompt_tokens,
                        read_tokens,
                    )
                    assert last["tokens_cached"] > last["tokens_evaluated"]
