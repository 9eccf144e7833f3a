"""The app over a scripted engine."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
import settling
import sheets
import styling
from textual._context import visible_screen_stack
from textual.app import App
from textual.pilot import Pilot

from specchat.chat.store import Store
from specchat.config.catalog import Catalog, Pair, Requires
from specchat.config.themes import load_themes
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.tui import in_turn, notice
from specchat.tui.app import SpecchatApp
from specchat.tui.composing import listing
from specchat.tui.launch import Launch
from tests.fake import FakeEngine
from tests.parts import changed

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the clipboard of whoever runs the tests alone."""
    monkeypatch.setenv("SSH_CONNECTION", "here")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time alone takes no notice away, and gives up no wait, on a machine that stands still for a moment."""
    monkeypatch.setattr(notice, "_SHOWN_FOR", 3600.0)
    monkeypatch.setattr(in_turn, "_LONGEST_S", settling.LONGEST_S)
    monkeypatch.setattr(listing, "LONGEST_S", settling.LONGEST_S)


@pytest.fixture(autouse=True)
def _left_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep an idle app from going through the garbage of all apps before it, for seconds."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)


EVERY_FRAME = {"test_any_text", "test_bursts", "test_feel", "test_monkey"}
"""Files whose tests are about frames on the way too."""


@pytest.fixture(autouse=True)
def _frames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "EVERY_FRAME", request.module.__name__ in EVERY_FRAME)


settling.install()
sheets.install()
styling.install()
LOOK_S = 0.005
"""Seconds between looks at what is waited for."""


def pair(id: str, name: str) -> Pair:
    spec = PairSpec(id, name, ModelSource(path=f"/models/{id}"), ModelSource(path=f"/models/{id}-draft"))
    sampling = Sampling(temperature=0.7)
    return Pair(spec, strategy="draft", lengths={"draft": 5}, sampling=sampling, requires=Requires(vram_gib=8.5))


CATALOG = Catalog((pair("demo", "demo"), pair("big", "Qwen3 8B + 0.6B")), "demo")
LAUNCH = Launch(CATALOG.pairs[0])
THEMES, PROBLEMS = load_themes([ROOT / "themes"])


def make_app(engine: FakeEngine, launch: Launch = LAUNCH, catalog: Catalog = CATALOG) -> SpecchatApp:
    store = Store() if launch.store is LAUNCH.store else launch.store
    return SpecchatApp(engine, catalog, changed(launch, themes=THEMES, store=store))


def flush(store: Store) -> None:
    """Wait until all is saved."""
    assert store._writer.put(lambda _: None).wait(60)


async def wait_until(pilot: Pilot[None], true: Callable[[], object], seconds: float = 60.0) -> None:
    """Let the app run until `true()` of what has settled; fail after `seconds`."""
    end = monotonic() + seconds
    while True:
        await pilot.pause()
        if true():
            return
        assert monotonic() < end, "it never came true"
        await asyncio.sleep(LOOK_S)


async def loaded(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await wait_until(pilot, lambda: app.session.loaded.info is not None)


async def ask(app: SpecchatApp, pilot: Pilot[None], text: str, *, wait: bool = True) -> None:
    """Type and send `text`, and wait for the reply to end."""
    app.chat.prompt.insert(text)
    await pilot.press("enter")
    await wait_until(pilot, lambda: app.session.conversation.turns)
    if wait:
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.pause()


def screen_text(app: App[None]) -> str:
    """What the window shows, row by row."""
    visible_screen_stack.set(app._background_screens)  # else a dialog is drawn, and kept, without what is behind it
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


@asynccontextmanager
async def answered(reply: str, size: tuple[int, int]) -> AsyncIterator[tuple[SpecchatApp, Pilot[None]]]:
    """The app in a terminal of `size` after "hi" was answered with `reply`."""
    app = make_app(FakeEngine((reply,)))
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        yield app, pilot
