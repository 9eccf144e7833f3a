"""`specchat serve` on loopback, over a scripted engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING

import httpcore2
import pytest
import uvicorn.server

from specchat.chat.store import Store
from specchat.config.catalog import Pair
from specchat.engine.protocol.port import EnginePort
from specchat.serve import listening
from specchat.serve.app import make_app
from specchat.serve.generation import Served
from specchat.serve.guard import AccessCheck
from specchat.service.chat_service import ChatService
from specchat.service.settings import Preferences
from specchat.service.state import ServiceOptions
from tests.fake import FakeEngine
from tests.service.made import CATALOG

SOON_S = 60.0
LOOK_S = 0.01
"""Seconds between looks of a server at whether it is to end: ten times as often as it looks by itself."""


async def look(seconds: float) -> None:
    await asyncio.sleep(min(seconds, LOOK_S))


vars(uvicorn.server)["asyncio"] = SimpleNamespace(**vars(asyncio) | {"sleep": look})
# Else each client reads all certificates of the system, for thirty milliseconds.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


class Server:
    """A running server."""

    def __init__(self, url: str, served: Served) -> None:
        self.url = url
        self.served = served


@asynccontextmanager
async def serving(
    engine: EnginePort, key: str = "", load: bool = True, pair: Pair = CATALOG.pairs[0]
) -> AsyncIterator[Server]:
    """A server of a pair; with `load` once that is loaded."""
    service = ChatService(engine, Store(), Preferences(), ServiceOptions(restarts=True))
    served = Served(service, pair)
    server = uvicorn.Server(listening.config(make_app(served, AccessCheck("127.0.0.1", key))))
    here = listening.listen("127.0.0.1", 0)
    tasks = [asyncio.create_task(server.serve([here])), asyncio.create_task(served.run())]
    async with asyncio.timeout(SOON_S):
        while not server.started or (load and service.loaded.info is None):
            await asyncio.sleep(0.005)
    try:
        yield Server(listening.url(here), served)
    finally:
        server.should_exit = True
        tasks[1].cancel()
        await asyncio.wait(tasks, timeout=SOON_S)
        engine.close()


def claude(server: Server) -> "AsyncAnthropic":
    """A client of Anthropic's, which has three thousand modules: it is imported for the tests with one alone."""
    from anthropic import AsyncAnthropic

    return AsyncAnthropic(base_url=server.url, api_key="x")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(("Once there was a fox who kept a lamp.",))
