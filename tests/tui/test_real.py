"""The app over the real engine and the demo pair."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest
from conftest import THEMES, ask, loaded, wait_until
from real_terminal import needs_tmux, terminal

from specchat.config.catalog import load_catalog
from specchat.config.paths import demo_model
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.options import Limits, Sampling
from specchat.engine.strategies import STRATEGIES
from specchat.service.settings import Preferences
from specchat.tui.actions.speculation import use_strategy
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch, UserConfig

pytestmark = [
    pytest.mark.skipif(not (demo_model("target") / "model.safetensors").exists(), reason="the demo pair is not here"),
]
SOME = list(STRATEGIES)[::4]
"""Strategies; tests of the engine have all."""
PROMPT = "Tell me a story about a fox and a lamp."


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    """One for all tests, each of which loads the pair anew."""
    client = EngineClient(tmp_path_factory.mktemp("engine") / "engine.log")
    yield client
    client.close()


def real_app(engine: EngineClient, max_tokens: int = 120, **changes: object) -> SpecchatApp:
    catalog = load_catalog(None)
    pair = catalog.find(catalog.default)
    launch = Launch(
        pair,
        config=UserConfig(themes=THEMES),
        preferences=Preferences(seed=7, sampling=Sampling(temperature=0.7), limits=Limits(max_tokens)),
    )
    return SpecchatApp(engine, catalog, replace(launch, **changes))  # type: ignore[arg-type]


async def test_the_text_is_the_same_with_some_strategies_changed_in_the_middle(engine: EngineClient) -> None:
    app = real_app(engine, 50)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.session.loaded.info is not None or app.session.loaded.error, 120)
        assert app.session.loaded.error == ""
        texts = []
        for strategy in SOME:
            app.chat.chats.new()
            use_strategy(app.chat, strategy)
            await ask(app, pilot, PROMPT, wait=False)
            await wait_until(pilot, lambda: app.session.reply is None, 60)
            reply = app.session.last_reply
            assert reply is not None
            assert reply.state == "finished", reply.outcome
            texts.append(reply.text)
            assert reply.text == "".join(piece.text for step in reply.steps for piece in step.pieces)
        app.chat.chats.new()
        await ask(app, pilot, PROMPT, wait=False)
        for strategy in ("draft", "plain"):
            at = len(app.session.last_reply.steps) if app.session.last_reply else 0
            await wait_until(
                pilot, lambda at=at: app.session.reply is None or len(app.session.reply.steps) > at + 3, 60
            )
            use_strategy(app.chat, strategy)
        await wait_until(pilot, lambda: app.session.reply is None, 60)
        assert app.session.last_reply is not None
        texts.append(app.session.last_reply.text)
        assert texts == [texts[0]] * (len(SOME) + 1)
        assert len(texts[0]) > 20


async def test_a_stop_a_killed_worker_and_a_refusal_keep_what_was_written(engine: EngineClient) -> None:
    app = real_app(engine, 600)
    async with app.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: app.session.loaded.info is not None, 120)
        for kill in (False, True):
            outcome = ""
            for _ in range(10):  # a reply may end by itself before it is interrupted
                await ask(app, pilot, PROMPT, wait=False)
                await wait_until(pilot, lambda: app.session.reply is None or len(app.session.reply.steps) > 5, 60)
                if app.session.reply is None:
                    continue
                if kill and engine.pid is not None:
                    os.kill(engine.pid, signal.SIGKILL)
                else:
                    await pilot.press("escape")
                await wait_until(pilot, lambda: app.session.reply is None and app.session.loaded.info is not None, 60)
                assert app.session.last_reply is not None
                if outcome := app.session.last_reply.outcome:
                    break
            assert "SIGKILL" in outcome if kill else outcome == "stopped"
            assert len(app.session.last_reply.text) > 5
        await wait_until(pilot, lambda: app.session.loaded.info is not None, 120)
        await loaded(app, pilot)
        await ask(app, pilot, "Hello", wait=False)
        await wait_until(pilot, lambda: app.session.reply is None, 60)
        assert app.session.last_reply is not None
        assert app.session.last_reply.state == "finished"
        prompt = "word " * 3000
        assert app.session.send(prompt) == ""
        await wait_until(pilot, lambda: app.session.reply is None, 60)
        assert app.chat.prompt.prompt.strip() == prompt.strip()
        assert "token" in str(app.chat.query_one("#status").render())


@needs_tmux
def test_the_command_in_a_terminal() -> None:
    with terminal((110, 34)) as shell:
        shell.start("--max-tokens 40 --strategy draft")
        shell.until("ask something")
        shell.until("type your question. Enter sends it.")
        shell.press("Hello there", "Enter")
        shell.until(" tok/s", "Hello there")
        shell.run("resize-window", "-t", "app", "-x", "70", "-y", "20")
        shell.until(" tok/s")
        shell.leave()
