"""Clients of all kinds at once: whatever they do, the next request is served."""

import asyncio
import json
from collections import Counter
from random import Random

import httpx2
import pytest

from specchat.engine.fake import FakeEngine
from tests.serve.conftest import Server, serving

TEXT = "one two three four five six seven eight nine ten eleven twelve"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "count"}]}
PATHS = ("/v1/chat/completions", "/v1/messages")
AT_ONCE = 12


async def one(client: httpx2.AsyncClient, server: Server, chance: Random) -> str:
    """A request of a random kind; returns its outcome."""
    path = chance.choice(PATHS)
    body = {**BODY, "max_tokens": 60, "stream": chance.random() < 0.5, "seed": chance.randrange(9)}
    match chance.choice(("good", "good", "leaves", "cut", "huge", "key", "slow", "garbage")):
        case "good":
            found = await client.post(server.url + path, json=body)
            assert found.status_code == 200
            assert "twelve" in found.text
            return "good"
        case "leaves":
            async with client.stream("POST", server.url + path, json={**body, "stream": True}) as stream:
                async for _ in stream.aiter_raw():
                    break
            return "left"
        case "cut":
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
            data = json.dumps(body).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            writer.write((head + data)[: chance.randrange(1, len(head) + len(data))])
            await writer.drain()
            writer.close()
            del reader
            return "cut"
        case "huge":
            words = "word " * chance.randrange(2_000, 20_000)
            found = await client.post(
                server.url + path, json={**body, "messages": [{"role": "user", "content": words}]}
            )
            return str(found.status_code)
        case "key":
            found = await client.post(server.url + path, json=body, headers={"x-api-key": str(chance.randrange(5))})
            assert found.status_code == 200
            return "good"
        case "slow":
            async with client.stream("POST", server.url + path, json={**body, "stream": True}) as stream:
                async for _ in stream.aiter_raw(16):
                    await asyncio.sleep(0)
            return "slow"
    found = await client.post(server.url + path, content=chance.randbytes(chance.randrange(200)))
    assert found.status_code == 400
    return "garbage"


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
async def test_random_clients_leave_nothing_behind(count: int) -> None:
    engine, chance = FakeEngine((TEXT,)), Random(5)
    async with serving(engine) as server, httpx2.AsyncClient(timeout=60) as client:
        before = len(asyncio.all_tasks())
        outcomes: Counter[str] = Counter()
        for _ in range(0, count, AT_ONCE):
            outcomes.update(await asyncio.gather(*(one(client, server, chance) for _ in range(AT_ONCE))))
        assert set(outcomes) >= {"good", "left", "cut", "slow", "garbage"}
        found = await client.post(f"{server.url}/v1/chat/completions", json=BODY)
        assert found.json()["choices"][0]["message"]["content"] == TEXT
        async with asyncio.timeout(30):
            while len(asyncio.all_tasks()) > before + 2 or server.served.queue.running:
                await asyncio.sleep(0.01)
        assert server.served.queue.waiting == 0
