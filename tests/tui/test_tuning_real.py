"""A draft is tuned by the real command beside the real engine, and taken into the chat: the text stays."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import THEMES, ask, screen_text, wait_until
from test_chat import status
from textual.pilot import Pilot

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.options import Limits, Sampling
from specchat.service.settings import Preferences
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tune.beside import BesideCommand
from specchat.tune.beside_work import TuningPlaces
from specchat.tune.registry import register
from specchat.tune.shelf import Tuned
from tests.chat.conftest import answer, flush
from tests.parts import changed

pytestmark = [
    pytest.mark.skipif(not (demo_model("target") / "model.safetensors").exists(), reason="the demo pair is not here"),
    pytest.mark.skipif(os.name != "posix", reason="the command is paused by signals"),
]
PROMPT = "Tell me a story about a fox and a lamp."


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineClient]:
    client = EngineClient(tmp_path / "engine.log")
    yield client
    client.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo with a worn draft, whose matrices are half noise, and chats with the demo's prompts."""
    import torch
    from safetensors.torch import load_file, save_file

    home = tmp_path / "home"
    monkeypatch.setenv("SPECCHAT_HOME", str(home))
    worn = tmp_path / "worn"
    shutil.copytree(demo_model("draft"), worn)
    weights = load_file(worn / "model.safetensors")
    noise = torch.Generator().manual_seed(3)
    for name, weight in weights.items():
        if weight.dim() == 2:
            drawn = torch.randn(weight.shape, generator=noise)
            weights[name] = (weight.float() + 0.5 * weight.float().std() * drawn).to(weight.dtype)
    save_file(weights, worn / "model.safetensors", {"format": "pt"})
    (home / "config").mkdir(parents=True)
    (home / "data").mkdir()
    target, draft = (f'{{ path = "{path}", device = "cpu" }}' for path in (demo_model("target"), worn))
    models = f"target = {target}\ndraft = {draft}\n"
    toml = f'schema = 1\ndefault = "worn"\n[[pair]]\nid = "worn"\nstrategy = "draft"\n{models}'
    (home / "config" / "models.toml").write_text(toml)
    return home


def real_app(home: Path, engine: EngineClient, *options: str) -> SpecchatApp:
    catalog = load_catalog(home / "config" / "models.toml")
    store = Store(home / "data" / "chats.db")
    places = TuningPlaces(
        home / "data" / "tuned",
        home / "data" / "tune" / "order.json",
        home / "config" / "models.toml",
        BesideCommand,
        options,
    )
    preferences = Preferences(limits=Limits(60))
    return SpecchatApp(
        engine,
        catalog,
        changed(Launch(catalog.find("worn"), preferences=preferences, store=store, tuning=places), themes=THEMES),
    )


async def texts(app: SpecchatApp, pilot: Pilot[None]) -> list[str]:
    """A greedy and a sampled reply to the same prompt."""
    found = []
    for sampling in (Sampling(), Sampling(temperature=0.7)):
        app.chat.chats.new()
        app.session.change(replace(app.session.settings, sampling=sampling, seed=7))
        await ask(app, pilot, PROMPT, wait=False)
        await wait_until(pilot, lambda: app.session.reply is None, 120)
        reply = app.session.last_reply
        assert reply is not None
        assert reply.state == "finished", reply.outcome
        assert reply.record.speculation.strategy == "draft"
        found.append(reply.text)
    return found


async def usable(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await wait_until(pilot, lambda: app.session.loaded.info is not None or app.session.loaded.error, 120)
    assert app.session.loaded.error == ""


async def test_another_draft_in_the_running_chat_leaves_the_text(home: Path, engine: EngineClient) -> None:
    app = real_app(home, engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await usable(app, pilot)
        before, worn = await texts(app, pilot), app.session.last_reply
        about = Tuned("worn-draft", "draft", "worn", 0.0, "no prompts", key="draft")
        made = register(about, demo_model("draft"), home / "data" / "tuned", home / "config" / "models.toml")
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "in use" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: "enter uses it" in screen_text(app))
        await pilot.press("enter", "escape")
        await wait_until(pilot, lambda: drafted_by(app) == str(made.folder))
        await usable(app, pilot)
        assert await texts(app, pilot) == before
        assert worn is not None
        assert app.session.last_reply is not None
        assert app.session.last_reply.tally.accepted > worn.tally.accepted


def drafted_by(app: SpecchatApp) -> str | None:
    pair = app.session.loaded.pair
    return pair.spec.draft.path if pair is not None and pair.spec.draft is not None else None


@pytest.mark.slow
async def test_a_tune_beside_the_chat_raises_what_is_accepted_and_leaves_the_text(
    home: Path, engine: EngineClient
) -> None:
    app = real_app(home, engine, "--replies", "128", "--steps", "150")
    chat = Conversation()
    for line in (Path(demo_model("target")).parent / "prompts.jsonl").read_text().splitlines()[:120]:
        turn = chat.ask(json.loads(line)["messages"][0]["content"])
        app.launch.store.add_turn(chat, turn, {})
        app.launch.store.save_reply(chat, answer(chat, turn, "Yes."))
    flush(app.launch.store)
    async with app.run_test(size=(120, 36)) as pilot:
        await usable(app, pilot)
        before = await texts(app, pilot)
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.tuning.outcome, 600)
        await usable(app, pilot)
        await pilot.pause()
        assert "is used" in " ".join(status(app).split())
        assert await texts(app, pilot) == before
