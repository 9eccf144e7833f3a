"""The stream of updates: when it wakes, and what it gathers."""

import asyncio
from collections.abc import AsyncIterator
from threading import Thread

import pytest

from specchat.engine.protocol.events import Event
from specchat.service import chat_service
from specchat.service.dispatch import Update
from tests.fake import FakeEngine
from tests.service.made import CATALOG, service_of

SOON_S = 20.0


async def until(updates: AsyncIterator[list[Update]], kind: str) -> list[list[Update]]:
    """All updates to the first of `kind`."""
    seen: list[list[Update]] = []
    async with asyncio.timeout(SOON_S):
        async for some in updates:
            seen.append(some)
            if any(update.kind == kind for update in some):
                break
    return seen


async def test_updates_arrive_without_looking() -> None:
    service = service_of(FakeEngine(("Hello there.",)))
    updates = service.updates()
    service.load(CATALOG.pairs[0])
    await until(updates, "loaded")
    service.send("hi")
    await until(updates, "ended")
    assert service.last_reply is not None
    assert service.last_reply.text == "Hello there."


async def test_a_message_of_another_thread_wakes_the_stream() -> None:
    engine = FakeEngine()
    service = service_of(engine)
    updates = service.updates()
    service.load(CATALOG.pairs[0])
    await until(updates, "loaded")
    waiting = asyncio.ensure_future(until(updates, "loading"))
    await asyncio.sleep(0)
    Thread(target=engine.die).start()
    (*_, (first, *_)) = await waiting
    assert first.kind == "loading"
    assert "starting again" in first.message


async def test_steps_that_come_close_together_are_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some 16 steps within a fifth of a second only those a tenth apart are updates of their own."""
    monkeypatch.setattr(chat_service, "STEPS_S", 0.1)
    words = " ".join(f"word{number}" for number in range(50))
    service = service_of(FakeEngine((words,), tokens_per_second=250))
    updates = service.updates()
    service.load(CATALOG.pairs[0])
    await until(updates, "loaded")
    service.send("count")
    seen = [some for some in await until(updates, "ended") if some]
    assert len(seen) <= 5
    assert service.last_reply is not None
    assert service.last_reply.text == words


async def test_requests_besides_the_chats_have_several_listeners() -> None:
    engine = FakeEngine(("Hello there.",))
    service = service_of(engine)
    updates = service.updates()
    service.load(CATALOG.pairs[0])
    await until(updates, "loaded")
    heard: list[Event] = []
    assert service.count("hi")
    (pending,) = service.listeners.pending
    service.listeners.add(pending, heard.append)
    await until(updates, "counted")
    assert service.prompt_count.counted in heard
    assert not service.busy


async def test_a_stream_whose_loop_has_ended_is_left_alone() -> None:
    engine = FakeEngine()
    service = service_of(engine)

    def elsewhere() -> None:
        async def once() -> None:
            async for _ in service.updates():
                return

        asyncio.run(once())

    await asyncio.to_thread(elsewhere)
    service.load(CATALOG.pairs[0])
    assert [update.kind for update in service.poll()][-1] == "loaded"
