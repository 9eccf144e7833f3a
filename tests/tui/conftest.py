"""The app over a scripted engine."""

import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from specchat.engine.api import ModelSource, PairSpec, Sampling
from specchat.engine.fake import INFO, FakeEngine
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tui.themes import textual_theme

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class APair:
    spec: PairSpec
    strategy: str = "draft"
    draft_length: int | None = 5
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=0.7))


@dataclass(frozen=True)
class ACatalog:
    pairs: Sequence[APair]


def pair(id: str, name: str) -> APair:
    return APair(PairSpec(id, name, ModelSource(path=f"/models/{id}"), ModelSource(path=f"/models/{id}-draft")))


CATALOG = ACatalog((pair("demo", "demo"), pair("big", "Qwen3 8B + 0.6B")))


def shipped_themes() -> list[Any]:
    themes = []
    for path in sorted((ROOT / "themes").glob("*.toml")):
        data = tomllib.loads(path.read_text())
        spec = data.pop("spec")
        themes.append(textual_theme(data.pop("name"), dark=data.pop("dark"), colors=data, spec=spec))
    return themes


def make_app(engine: FakeEngine, launch: Launch | None = None, catalog: ACatalog = CATALOG) -> SpecchatApp:
    launch = replace(launch or Launch("demo"), themes=shipped_themes())
    return SpecchatApp(engine, catalog, launch)


async def wait_until(pilot: Pilot[None], true: Callable[[], object], seconds: float = 10.0) -> None:
    """Let the app run until `true()`; fail after `seconds`."""
    for _ in range(int(seconds / 0.02)):
        await pilot.pause(0.02)
        if true():
            return
    raise AssertionError("it never came true")


Ready = Callable[[SpecchatApp, Pilot[None]], Awaitable[None]]


async def loaded(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await wait_until(pilot, lambda: app.session.info is not None)


async def ask(app: SpecchatApp, pilot: Pilot[None], text: str, *, wait: bool = True) -> None:
    """Type and send `text`, and wait for the reply to end."""
    app.chat.prompt.insert(text)
    await pilot.press("enter")
    await wait_until(pilot, lambda: app.session.conversation.turns)
    if wait:
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.pause()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(("Once there was a small fox.\n\nShe kept a lamp.",), info=INFO)
