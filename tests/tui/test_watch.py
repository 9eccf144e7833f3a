"""The reply that a shared engine writes for another program: told in the status row, and watched."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from conftest import ask, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot

from specchat.engine.protocol.events import Elsewhere, Failed, Finished, OtherClient, Started, Step
from specchat.engine.protocol.options import Speculation, Written
from specchat.engine.protocol.requests import Request, Watch
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.watch import WatchScreen
from tests.fake import FakeEngine
from tests.fake_steps import stats, steps

TEXT = "Once there was a fox who kept a lamp."
FOREIGN = 1 << 40
Told = OtherClient | Started | Step | Finished | Failed


class SharedFake(FakeEngine):
    """A scripted engine that another client uses as well."""

    def __init__(self) -> None:
        super().__init__(("Hello there.",))
        self.watches: list[Watch] = []

    def send(self, request: Request) -> None:
        if isinstance(request, Watch):
            self.watches.append(request)
        super().send(request)

    def tell(self, *events: Told) -> None:
        self._ready += [Elsewhere(event) for event in events]
        self._arrived(None)


HEAD = (OtherClient(FOREIGN, "serve", 42, "[red]Why?[/] \x1b[31m"), Started(FOREIGN, 5, 0, 7, Speculation.of("draft")))


def written() -> list[Step]:
    return [replace(step, id=FOREIGN) for step in steps(Written(TEXT))]


@asynccontextmanager
async def sharing(size: tuple[int, int] = (120, 36)) -> AsyncIterator[tuple[SpecchatApp, Pilot[None], SharedFake]]:
    engine = SharedFake()
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        yield app, pilot, engine


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (60, 15)])
async def test_a_reply_for_another_program_is_told_and_watched_as_it_comes(size: tuple[int, int]) -> None:
    async with sharing(size) as (app, pilot, engine):
        assert engine.watches == [Watch()]
        engine.tell(*HEAD)
        await wait_until(pilot, lambda: "the engine answers serve; /watch shows it" in screen_text(app))
        await app.chat.do("watch")
        await wait_until(pilot, lambda: isinstance(app.screen, WatchScreen))
        assert engine.watches == [Watch(), Watch(steps=True)]
        first, *rest = written()
        engine.tell(first)
        await wait_until(pilot, lambda: "serve (process 42) · writing" in screen_text(app))
        shown = screen_text(app)
        assert "❯ [red]Why?[/] ␛[31m" in shown
        assert "fox" not in shown
        engine.tell(*rest, Finished.of(FOREIGN, "stop", Written(TEXT), (), stats(written(), 5, 0)))
        await wait_until(pilot, lambda: "serve (process 42) · ended" in screen_text(app))
        shown = screen_text(app)
        assert "who kept" in shown.replace("\n", " ")
        assert "tok/s" in shown
        assert ("tokens per step" if size[0] > 80 else "a step") in shown
        await pilot.press("escape")
        await wait_until(pilot, lambda: engine.watches[-1] == Watch())
        await wait_until(pilot, lambda: "/watch" not in screen_text(app))


async def test_own_replies_and_chats_are_untouched() -> None:
    async with sharing() as (app, pilot, engine):
        engine.tell(*HEAD, *written())
        await ask(app, pilot, "hi")
        assert [turn.reply.text for turn in app.session.conversation.turns if turn.reply] == ["Hello there."]
        assert app.session.others.now is not None


async def test_the_next_reply_takes_its_place_and_a_lost_engine_ends_it() -> None:
    async with sharing() as (app, pilot, engine):
        await app.chat.do("watch")
        await wait_until(pilot, lambda: "no other program yet" in screen_text(app))
        engine.tell(*HEAD, written()[0], Failed(FOREIGN, "memory", "It ran out."))
        await wait_until(pilot, lambda: "ended: It ran out." in screen_text(app))
        engine.tell(OtherClient(FOREIGN + 1, "ask", 43, "And?"), Started(FOREIGN + 1, 5, 0, 7, Speculation()))
        engine.tell(Step(FOREIGN, (), 0, 0, 0, 1, 0.0, 1.0, 0.0, 9, "plain"))
        await wait_until(pilot, lambda: "ask (process 43) · writing" in screen_text(app))
        engine.die()
        await wait_until(pilot, lambda: "ended: The engine has ended." in screen_text(app))


async def test_that_nothing_was_written_yet_is_read_whole() -> None:
    async with sharing((60, 15)) as (app, pilot, _):
        await app.chat.do("watch")
        await wait_until(pilot, lambda: "will be here." in screen_text(app))
