"""The app over a server elsewhere: a reply with its steps, and no words of a pair of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LAUNCH, THEMES, ask, loaded, screen_text, wait_until

from specchat.chat.store import Store
from specchat.config.catalog import Catalog, Pair
from specchat.engine.protocol.pair import Server
from specchat.remote.engine import RemoteEngine
from specchat.remote.routing import RoutingEngine
from specchat.tui.app import SpecchatApp
from tests.drawn import drawn
from tests.fake import FakeEngine
from tests.parts import changed
from tests.remote.conftest import spec
from tests.remote.server import CHAT, Scripted, serving
from tests.remote.test_steps import CHAT_KEY, LLAMA, recorded
from tests.remote.test_trouble import error, refused


@pytest.fixture
def server() -> Iterator[Scripted]:
    pages = {"slots": "llamacpp-draft-slots.json", CHAT_KEY: "llamacpp-draft-stream.txt"}
    with serving(**LLAMA, **pages) as one:
        yield one


def app_of(server: Scripted, plain: Scripted | None = None) -> SpecchatApp:
    undrafted = Server(plain.url) if plain is not None else None
    pair = Pair(spec(server.url, undrafted=undrafted), strategy="plain")
    engine = RoutingEngine(FakeEngine, RemoteEngine, pair.spec)
    launch = changed(LAUNCH, pair=pair, themes=THEMES, store=Store())
    return SpecchatApp(engine, Catalog((pair,), pair.id), launch)


async def test_what_a_server_drafted_is_shown(server: Scripted) -> None:
    app = app_of(server)
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me a story about a cat.")
        await wait_until(pilot, lambda: "Once upon a time" in screen_text(app))
        shown = " ".join(screen_text(app).split())
        assert "Box · llama.cpp's server" in shown
        assert "drafts accepted 81 %" in shown  # 35 of 43
        assert "where the time went" not in shown
        assert "ended at the token limit" in shown
        assert "plain was not measured" in shown
        assert "x plain" not in shown
        await pilot.press("ctrl+t", "ctrl+up", "l")
        await wait_until(pilot, lambda: "ms on the server" in screen_text(app))
        await app.chat.do("what-if")
        await wait_until(pilot, lambda: "a server drafted this reply" in screen_text(app))
        await app.chat.do("race")
        await wait_until(pilot, lambda: "this server cannot turn drafting off" in screen_text(app))
        await app.chat.do("ledger")
        await wait_until(pilot, lambda: "server" in screen_text(app))
        await pilot.press("escape")


async def test_a_race_against_the_server_without_drafting_is_measured(server: Scripted) -> None:
    pages = {"slots": "llamacpp-none-slots.json", CHAT_KEY: "llamacpp-none-stream.txt"}
    text = recorded("llamacpp-none-stream.txt")[0]
    with serving(**LLAMA, **pages) as plain:
        app = app_of(server, plain)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(app, pilot)
            await ask(app, pilot, "Tell me a story about a cat.")
            await wait_until(pilot, lambda: "ended at the token limit" in screen_text(app))
            assert "a race tells whether it pays" in " ".join(screen_text(app).replace("│", " ").split())
            await app.chat.do("race")
            await wait_until(pilot, lambda: f"outputs identical: yes, all {len(text):,} characters" in screen_text(app))
            shown = " ".join(screen_text(app).split())
            verdict = app.session.racing.race.verdict
            assert verdict is not None
            assert f"server: {verdict.times:.2f}x plain" in shown
            timings = [
                recorded(f"llamacpp-{name}-stream.txt")[1]["timings"]["predicted_ms"] for name in ("none", "draft")
            ]
            assert verdict.times == pytest.approx(timings[0] / timings[1], rel=0.02)
            await pilot.press("escape")
            (call,) = plain.of(CHAT)
            assert call.body["messages"] == server.of(CHAT)[-1].body["messages"]
            assert call.body["cache_prompt"] is False
            account = app.session.ledger.accounts["Box", "server"]
            assert account.replies == 2
            compared = account.compared.estimate
            assert compared is not None
            assert compared.times == pytest.approx(verdict.times, rel=0.05)
            await app.chat.do("about")
            await wait_until(pilot, lambda: "measured by a race, without drafting at" in screen_text(app))


async def test_the_settings_offer_what_the_server_does(server: Scripted) -> None:
    app = app_of(server)
    async with app.run_test(size=(120, 50)) as pilot:
        await loaded(app, pilot)
        await wait_until(pilot, lambda: "The panel shows the server's speed" in screen_text(app))
        await app.chat.do("settings")
        await wait_until(pilot, lambda: "llama.cpp's server drafts by itself, as it was started." in screen_text(app))
        shown = screen_text(app)
        assert "● Server " in shown
        for unused in ("Lookup", "draft length", "acceptance", "earlier chats"):
            assert unused not in shown
        app.screen.query_one("#strategy").focus()
        await pilot.press("enter", "escape")
        await wait_until(pilot, lambda: app.screen is app.chat)


async def test_about_and_models_say_where_it_runs(server: Scripted) -> None:
    app = app_of(server)
    async with app.run_test(size=(140, 40)) as pilot:
        await loaded(app, pilot)
        await app.chat.do("about")
        await wait_until(pilot, lambda: f"llama.cpp's server at {server.url}" in screen_text(app))
        shown = " ".join(screen_text(app).split())
        assert "6.7 M parameters" in shown
        assert "not measured: no speed-up is shown" in shown
        assert "MiB" not in shown.split("about")[-1].split("context")[0]
        await pilot.press("escape")
        await app.chat.do("models")
        await wait_until(pilot, lambda: "runs elsewhere and takes nothing here" in screen_text(app))
        assert "found out when it is loaded" in screen_text(app)


async def test_a_refused_picture_leaves_the_chat_and_gives_the_prompt_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fox.png").write_bytes(drawn())
    monkeypatch.chdir(tmp_path)
    answers = {CHAT_KEY: refused("400 Bad Request", error("m is not a multimodal model"))}
    with serving(v1__models={"data": [{"id": "m"}]}, **answers) as one:
        app = app_of(one)
        async with app.run_test(size=(120, 40)) as pilot:
            await loaded(app, pilot)
            await ask(app, pilot, "what is @fox.png here")
            await wait_until(pilot, lambda: "m is not a multimodal model." in " ".join(screen_text(app).split()))
            assert app.chat.prompt.text == "what is @fox.png here"
            assert [turn.prompt for turn in app.session.conversation.turns] == ["what is @fox.png here"]
            (call,) = one.of(CHAT)
            assert call.body["messages"][-1]["content"][0]["type"] == "image_url"
