"""Clients of all kinds at once: whatever they do, the next request is served."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from specchat.engine.protocol.options import ToolCall, Written
from tests.fake import FakeEngine
from tests.serve.conftest import Server, serving
from tests.serve.test_agents import model, real
from tests.serve.test_tools import ANTHROPIC, FUNCTION, OPENAI

__all__ = ["model"]
TEXT = "one two three four five six seven eight nine ten eleven twelve"
CALLING = Written(TEXT, tool_calls=tuple(ToolCall(f"abcdefgh{n}", "look", '{"path": "ç"}') for n in range(2)))
BODY: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "count"}]}
TOOLS: dict[str, Any] = {
    "/v1/chat/completions": OPENAI,
    "/v1/messages": ANTHROPIC,
    "/v1/responses": [{"type": "function", **FUNCTION}],
}
AT_ONCE = 12


async def one(client: httpx2.AsyncClient, server: Server, chance: Random, said: str) -> str:
    """A request of a random kind; returns its outcome. Good replies have a text that was `said`."""
    path = chance.choice([*TOOLS])
    body = {**BODY, "max_tokens": 60, "stream": chance.random() < 0.5, "seed": chance.randrange(9)}
    if path == "/v1/responses":
        body["input"] = body.pop("messages")
    if chance.random() < 0.5:
        body["tools"] = TOOLS[path]
    match chance.choice(("good", "good", "leaves", "cut", "huge", "key", "slow", "garbage", "tools")):
        case "good":
            found = await client.post(server.url + path, json=body)
            assert found.status_code == 200
            assert said in found.text
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
            words = [{"role": "user", "content": "word " * chance.randrange(2_000, 20_000)}]
            found = await client.post(
                server.url + path, json={**body, "input" if "input" in body else "messages": words}
            )
            assert found.status_code in (200, 400)
            return str(found.status_code)
        case "tools":
            wrong = chance.choice(
                [[{"type": "other"}], [7], "x", [TOOLS[path][0]] * 3000, [{**TOOLS[path][0], "name": 3}]]
            )
            found = await client.post(server.url + path, json={**body, "tools": wrong})
            assert found.status_code in (200, 400)
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
    async with serving(FakeEngine((TEXT, CALLING))) as server:
        await endure(server, count, "twelve")
        assert b'reason="error"' not in server.served.metrics.page()


@pytest.mark.slow
async def test_random_clients_leave_nothing_behind_in_a_real_engine(model: Path) -> None:
    async with real(model) as server:
        await endure(server, 1000, "I look.")


async def endure(server: Server, count: int, said: str) -> None:
    """Send `count` requests of all kinds; good replies have a text that was `said`."""
    chance = Random(5)
    async with httpx2.AsyncClient(timeout=60) as client:
        before = len(asyncio.all_tasks())
        outcomes: Counter[str] = Counter()
        for _ in range(0, count, AT_ONCE):
            outcomes.update(await asyncio.gather(*(one(client, server, chance, said) for _ in range(AT_ONCE))))
        assert set(outcomes) >= {"good", "left", "cut", "slow", "garbage"}
        found = await client.post(f"{server.url}/v1/chat/completions", json=BODY)
        assert said in found.json()["choices"][0]["message"]["content"]
        async with asyncio.timeout(30):
            while len(asyncio.all_tasks()) > before + 2 or server.served.queue.running:
                await asyncio.sleep(0.01)
        assert server.served.queue.waiting == 0
