"""Turns of requests, and clients that leave."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import httpx2
import pytest

from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Message, Written
from specchat.engine.protocol.pair_info import ReadTexts
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.protocol.stats import Stats
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat
from specchat.serve.metrics import Metrics
from specchat.serve.openai_chat import ChatRequest
from specchat.serve.queue import FairQueue
from tests.fake import FakeEngine
from tests.serve.conftest import SOON_S, Server, serving
from tests.service.made import Clock

BODY = {"model": "demo", "messages": [{"role": "user", "content": "count"}]}
LONG = " ".join(f"word{number}" for number in range(400))


async def test_clients_take_turns() -> None:
    queue, order = FairQueue(at_once=1), list[str]()

    async def ask(client: str, number: int) -> None:
        async with queue.turn(client):
            order.append(f"{client}{number}")
            await asyncio.sleep(0)

    tasks = [
        asyncio.create_task(ask(client, number)) for client, count in (("a", 4), ("b", 2)) for number in range(count)
    ]
    await asyncio.gather(*tasks)
    assert order == ["a0", "a1", "b0", "a2", "b1", "a3"]
    assert (queue.waiting, queue.running) == (0, 0)


async def test_a_full_queue_refuses_and_one_that_leaves_makes_room() -> None:
    queue, release = FairQueue(most=1, at_once=1), asyncio.Event()

    async def ask() -> None:
        async with queue.turn("a"):
            await release.wait()

    running = asyncio.create_task(ask())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="wait already") as refused:
        await ask()
    assert refused.value.status == 429
    waiting.cancel()
    await asyncio.wait([waiting])
    assert queue.waiting == 0
    release.set()
    await running
    await ask()


async def test_a_turn_that_comes_as_its_client_leaves_goes_to_the_next() -> None:
    queue, order = FairQueue(at_once=1), list[str]()

    async def ask(name: str) -> None:
        async with queue.turn(name):
            order.append(name)

    async with queue.turn("a"):
        tasks = [asyncio.create_task(ask(name)) for name in "bcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert order == ["d"]
    assert (queue.running, queue.waiting) == (0, 0)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(SOON_S):
        while not true():
            await asyncio.sleep(0.005)


def cancelled(engine: FakeEngine) -> list[int]:
    return [request.id for request in engine.requests if isinstance(request, Cancel)]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_reply(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine((LONG,), tokens_per_second=20, clock=(clock := Clock()))
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        leaving = asyncio.create_task(_take(client, server, stream))
        await until(lambda: any(isinstance(request, Generate) for request in engine.requests))
        clock.now = 1.0
        await until(lambda: engine._steps)
        leaving.cancel()
        await asyncio.wait([leaving])
        await until(lambda: cancelled(engine))
        engine.tokens_per_second = None
        found = await client.post(f"{server.url}/v1/chat/completions", json=BODY)
        assert found.json()["choices"][0]["message"]["content"] == LONG
        await until(lambda: server.served.queue.running == 0)
    assert not any(record.exc_info for record in caplog.records)


async def _take(client: httpx2.AsyncClient, server: Server, stream: bool) -> None:
    async with client.stream("POST", f"{server.url}/v1/chat/completions", json={**BODY, "stream": stream}) as found:
        async for _ in found.aiter_lines():
            pass


async def test_a_client_that_reads_nothing_holds_nobody() -> None:
    async with serving(FakeEngine((LONG,))) as server:
        served = server.served
        make = served.request(ChatRequest.model_validate(BODY), Chat((Message("user", "count"),)))
        stalled, other = served.reply("a", make), served.reply("b", make)
        seen = await anext(stalled)
        assert isinstance(seen[0], Started)
        async with asyncio.timeout(SOON_S):
            assert isinstance([some async for some in other][-1][-1], Finished)
            assert isinstance([*seen, *[event async for some in stalled for event in some]][-1], Finished)


async def test_the_counters_are_those_of_the_replies() -> None:
    engine = FakeEngine((LONG,))
    async with serving(engine) as server, httpx2.AsyncClient(timeout=SOON_S) as client:
        replies = [(await client.post(f"{server.url}/v1/chat/completions", json=BODY)).json() for _ in range(2)]
        page = (await client.get(f"{server.url}/metrics")).text
    stats = [reply["metrics"]["speculative_decoding"] for reply in replies]
    counters = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    labels = '{model_name="demo"}'
    for name, key in (("drafts", "num_spec_steps"), ("draft_tokens", "num_draft_tokens"),
                      ("accepted_tokens", "num_accepted_draft_tokens")):  # fmt: skip
        assert float(counters[f"vllm:spec_decode_num_{name}_total{labels}"]) == sum(each[key] for each in stats)
    at = [float(value) for name, value in counters.items() if "per_pos_total" in name]
    assert sum(at) == sum(each["num_accepted_draft_tokens"] for each in stats)
    assert at == sorted(at, reverse=True)


def test_the_page_tells_what_read_texts_take() -> None:
    metrics = Metrics("demo", FairQueue())
    for read in (ReadTexts(1000, 500), ReadTexts(300, 70)):
        metrics.finished(replace(Finished.unbegun(Generate(1, ())), read=read), 0.0)
    page = metrics.page().decode()
    for name, size in (("bytes", 300), ("disk_bytes", 70)):
        assert f'vllm:read_texts_{name}{{model_name="demo"}} {size:.1f}' in page


def test_the_page_tells_how_many_replies_shared_a_pass() -> None:
    metrics, alone = Metrics("demo", FairQueue()), Finished.unbegun(Generate(1, ()))
    shared = replace(alone.stats, num_steps=9, num_shared_steps=5, num_sharing_replies=14)
    for stats in (alone.stats, shared, shared):
        metrics.finished(replace(alone, stats=stats), 0.0)
    page = metrics.page().decode()
    assert 'vllm:shared_steps_total{model_name="demo"} 10.0' in page
    assert 'vllm:sharing_replies_total{model_name="demo"} 28.0' in page
    assert shared.replies_a_pass == 2.0


async def test_the_page_tells_of_requests_their_ends_and_their_times() -> None:
    metrics = Metrics("demo", queue := FairQueue(at_once=1))
    stats = Stats(7, 3, 5, ttft_ms=2000.0, verify_ms=4000.0, per_step_accepted=(2, 1, 0))
    for reason in ("context", "length", "cancelled"):
        metrics.finished(Finished.of(1, reason, Written(), (), stats), 3.0)
    metrics.failed()

    async def ask() -> None:
        async with queue.turn("b"):
            pass

    async with queue.turn("a"):
        waiting = asyncio.create_task(ask())
        await asyncio.sleep(0)
        page = metrics.page().decode()
    await waiting
    found = {name: float(value) for name, value in (x.rsplit(" ", 1) for x in page.splitlines() if x[0] != "#")}
    for name, labels, value in (
        ("num_requests_running", "", 1), ("num_requests_waiting", "", 1),
        ("prompt_tokens_total", "", 21), ("generation_tokens_total", "", 15), ("prefix_cache_hits_total", "", 9),
        ("request_success_total", 'finished_reason="length",', 2),
        ("request_success_total", 'finished_reason="abort",', 1),
        ("request_success_total", 'finished_reason="error",', 1),
        ("time_to_first_token_seconds_sum", "", 6), ("request_queue_time_seconds_sum", "", 9),
        ("request_decode_time_seconds_sum", "", 12),
    ):  # fmt: skip
        assert found[f'vllm:{name}{{{labels}model_name="demo"}}'] == value
    at = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="demo",position='
    assert [value for name, value in found.items() if name.startswith(at)] == [6, 3]


async def test_some_run_at_once_and_the_next_begins_where_one_ends() -> None:
    queue, order = FairQueue(at_once=2), list[str]()
    ends = {name: asyncio.Event() for name in "abc"}

    async def ask(name: str) -> None:
        async with queue.turn(name):
            order.append(name)
            await ends[name].wait()

    tasks = [asyncio.create_task(ask(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert (order, queue.running, queue.waiting) == (["a", "b"], 2, 1)
    ends["b"].set()
    await tasks[1]
    await asyncio.sleep(0)
    assert (order, queue.running, queue.waiting) == (["a", "b", "c"], 2, 0)
    for end in ends.values():
        end.set()
    await asyncio.wait(tasks)
    assert queue.running == 0
