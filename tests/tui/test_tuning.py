"""Tuning beside the chat: asked for, followed, paused, stopped, gone on with, and taken into the chat."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ask, loaded, screen_text, wait_until
from test_chat import LONG, slow, status
from textual.binding import Binding
from textual.pilot import Pilot
from tunes import SIZE, Jobs, chatting, models_toml, tunes

from specchat.config.catalog import Catalog
from specchat.engine.protocol.pair_info import DraftFacts, PairInfo
from specchat.engine.protocol.requests import Load
from specchat.models.declare import set_setting
from specchat.tui.app import SpecchatApp
from specchat.tui.screens import beside_dialog
from specchat.tui.screens import tune as tune_screen
from specchat.tui.screens.models import ModelsScreen
from specchat.tui.screens.tune import TuneScreen
from specchat.tune import BEGUN_WITH
from specchat.tune.beside_tune import Tuning
from tests.fake import INFO, FakeEngine
from tests.parts import changed


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return models_toml(tmp_path)


async def begin(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await app.chat.do("tune")
    await wait_until(pilot, lambda: "enter begins" in screen_text(app))
    await pilot.press("enter")
    await wait_until(pilot, lambda: app.session.tuning.busy)


async def shown(app: SpecchatApp, pilot: Pilot[None], words: str) -> None:
    await wait_until(pilot, lambda: words in " ".join(status(app).split()))


@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_the_list_of_models_offers_it_on_the_loaded_pair(toml: Path, jobs: Jobs, size: tuple[int, int]) -> None:
    async with chatting(toml, jobs, size=size) as (app, pilot):
        await pilot.press("f3")
        await wait_until(pilot, lambda: "t tunes" in screen_text(app))
        assert isinstance(app.screen, ModelsScreen)
        await pilot.press("down", "ctrl+t")
        await pilot.pause()
        assert isinstance(app.screen, ModelsScreen)
        await pilot.press("up", "ctrl+t")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        words = " ".join(screen_text(app).replace("│", " ").split())
        assert "Your 5 saved chats have 20 prompts. They never leave this machine." in words
        assert "min while you write nothing, and" in words
        await pilot.press("enter")
        await wait_until(pilot, lambda: jobs.made)
        assert jobs.last.arguments == ("tune", "draft", "demo", "--chats", "--json")


async def test_its_progress_is_told_beside_the_chat(toml: Path, jobs: Jobs) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        await begin(app, pilot)
        await shown(app, pilot, "tune on your chats: loading the models")
        jobs.last.at("replies", 0.25)
        await shown(app, pilot, "the model answers 25%")
        jobs.last.at("training", 0.0, accepted_before=0.4, accepted=0.4)
        await shown(app, pilot, "training 0% · accepted 40%")
        jobs.last.phase_s = 120.0
        jobs.last.at("training", 0.5, accepted_before=0.4, accepted=0.55)
        await shown(app, pilot, "training 50% · accepted 40%, now 55%")
        left = app.session.tuning.left_s()
        assert left is not None
        assert left > 120.0
        jobs.last.at("measuring", 0.0)
        await shown(app, pilot, "measuring 0%")
        jobs.last.at("measuring", 0.75)
        await shown(app, pilot, "measuring 75%")
        assert app.session.tuning.left_s() == pytest.approx(40.0)


async def test_it_waits_while_a_reply_is_written(toml: Path, jobs: Jobs) -> None:
    engine, clock = slow(LONG)
    async with chatting(toml, jobs, engine) as (app, pilot):
        await begin(app, pilot)
        assert not jobs.last.paused
        await ask(app, pilot, "hi", wait=False)
        assert jobs.last.paused
        await wait_until(pilot, lambda: "tune waits" in status(app))
        clock.now = 10_000
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: not jobs.last.paused)


async def test_a_tuned_draft_is_taken_into_the_chat_that_goes_on(toml: Path, jobs: Jobs) -> None:
    engine, clock = slow(LONG)
    async with chatting(toml, jobs, engine) as (app, pilot):
        await begin(app, pilot)
        settings = replace(app.session.settings, seed=99)
        app.session.change(settings)
        await ask(app, pilot, "hi", wait=False)
        tuned = toml.parent / "tuned" / "demo-draft"
        set_setting(toml, "demo", "draft", tuned)
        figures = {"before": {"accepted": 0.41}, "after": {"accepted": 0.6}, "times": [1.25, 1.1, 1.4]}
        jobs.last.end("done", taken=True, id="demo-draft", **figures)
        await pilot.pause()
        assert app.session.reply is not None  # it is taken between replies
        assert sum(isinstance(request, Load) for request in engine.requests) == 1
        clock.now = 10_000
        await shown(app, pilot, "41% accepted before, 60% now; 1.25x as fast, 1.10 to 1.40.")
        await loaded(app, pilot)
        loads = [request for request in engine.requests if isinstance(request, Load)]
        assert len(loads) == 2
        draft = loads[-1].pair.draft
        assert draft is not None
        assert draft.path == str(tuned)
        assert app.session.settings == settings
        reply = app.session.conversation.turns[0].reply
        assert reply is not None
        assert reply.state == "finished"
        await ask(app, pilot, "more", wait=False)
        assert "accepted before" not in status(app)


async def test_a_draft_that_is_not_surely_faster_leaves_the_pair(toml: Path, jobs: Jobs) -> None:
    engine = FakeEngine()
    async with chatting(toml, jobs, engine) as (app, pilot):
        await begin(app, pilot)
        jobs.last.end("done", taken=False, times=[1.05, 0.97, 1.14])
        await shown(app, pilot, "no sure gain (1.05x as fast, 0.97 to 1.14), so the draft stays as it was.")
        assert sum(isinstance(request, Load) for request in engine.requests) == 1
        assert app.session.tuning.ordered() == ("", False)


async def test_a_failure_is_a_sentence_and_can_be_gone_on_with(toml: Path, jobs: Jobs) -> None:
    said = "/data/tune cannot be written (No space left on device)."
    async with chatting(toml, jobs) as (app, pilot):
        await begin(app, pilot)
        jobs.last.end("failed", said)
        await shown(app, pilot, said)
        assert app.session.tuning.ordered() == ("", False)
        await begin(app, pilot)
        assert len(jobs.made) == 2


async def test_it_is_stopped_from_its_dialog_and_by_its_command(toml: Path, jobs: Jobs) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("tune", "stop")
        assert "nothing is tuned" in status(app)
        await begin(app, pilot)
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "x stops" in screen_text(app))
        await pilot.press("enter", "x", "escape")
        assert jobs.last.state == "stopping"
        jobs.last.end("stopped")
        await shown(app, pilot, "The tune is stopped. What was learnt so far is kept; /tune goes on with it.")
        await begin(app, pilot)
        await app.chat.do("tune", "stop")
        assert jobs.last.state == "stopping"
        assert len(jobs.made) == 2


async def test_it_goes_on_when_the_app_is_started_again(toml: Path, jobs: Jobs) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        await begin(app, pilot)
        await app.action_quit()
    assert jobs.last.killed
    async with chatting(toml, jobs) as (app, pilot):
        await wait_until(pilot, lambda: app.session.tuning.busy)
        assert [job.arguments for job in jobs.made] == [("tune", "draft", "demo", "--chats", "--json")] * 2
        jobs.last.end("done", taken=False, times=[1.0, 0.9, 1.1])
        await shown(app, pilot, "no sure gain")
    async with chatting(toml, jobs) as (app, pilot):
        await pilot.pause()
        assert len(jobs.made) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"pair": 3}', '{"pair": "gone"}'])
async def test_an_order_that_makes_no_sense_begins_nothing(toml: Path, jobs: Jobs, text: str) -> None:
    order = toml.parent / "tune" / "order.json"
    order.parent.mkdir()
    order.write_text(text)
    async with chatting(toml, jobs) as (_, pilot):
        await pilot.pause()
        assert not jobs.made


@pytest.mark.parametrize(
    ("info", "prompts", "words"),
    [
        (INFO, 12, "Your saved chats have 12 prompts with a reply. It takes 16 at least: chat a while first."),
        (replace(INFO, draft=DraftFacts()), 20, "This pair has no draft model to train."),
        (changed(INFO, memory=1 << 50), 20, "are free. Close other programs, or choose a smaller pair."),
    ],
)
async def test_what_cannot_be_tuned_is_told_and_enter_does_nothing(
    toml: Path, jobs: Jobs, info: PairInfo, prompts: int, words: str
) -> None:
    async with chatting(toml, jobs, FakeEngine(info=info), prompts) as (app, pilot):
        await app.chat.do("tune")
        await wait_until(pilot, lambda: words in " ".join(screen_text(app).replace("│", " ").split()))
        assert "enter begins" not in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.screen, TuneScreen)
        assert not jobs.made


async def test_a_stopped_one_goes_on(toml: Path, jobs: Jobs) -> None:
    """Its folder has the prompts that it began with."""
    begun = toml.parent / "tune" / "demo-draft" / BEGUN_WITH
    begun.parent.mkdir(parents=True)
    begun.write_text("{}")
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "enter goes on" in screen_text(app))
        assert "enter begins" not in screen_text(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.tuning.busy)


GPU_INFO = changed(INFO, gpu="GPU-1", memory=6 * 10**9)


@pytest.mark.parametrize("free", [None, 1 << 40])
async def test_a_pair_on_the_gpu_is_tuned_there(
    free: int | None, toml: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_screen, "free_memory_of", lambda uuid: {"GPU-1": free}[uuid])
    async with chatting(toml, jobs, FakeEngine(info=GPU_INFO)) as (app, pilot):
        await begin(app, pilot)
        assert jobs.last.arguments == ("tune", "draft", "demo", "--chats", "--json")
        assert app.session.tuning.ordered() == ("demo", False)


async def test_what_the_gpu_has_no_room_for_is_tuned_in_main_memory(
    toml: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the app is started again."""
    monkeypatch.setattr(tune_screen, "free_memory_of", lambda _: 4 * 10**9)
    monkeypatch.setattr(beside_dialog, "free_memory", lambda: 1 << 40)
    async with chatting(toml, jobs, FakeEngine(info=GPU_INFO)) as (app, pilot):
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        words = " ".join(screen_text(app).replace("│", " ").split())
        assert re.search(r"The GPU lacks 2\.\d GB of 6\.\d GB for it, so it is trained in main memory\.", words)
        assert re.search(r"and 1\d GB of memory beside the chat\.", words)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.tuning.busy)
        assert jobs.last.arguments == ("tune", "draft", "demo", "--chats", "--json", "--device", "cpu")
        await app.action_quit()
    async with chatting(toml, jobs) as (app, pilot):
        await wait_until(pilot, lambda: app.session.tuning.busy)
        assert jobs.last.arguments[-2:] == ("--device", "cpu")


@pytest.mark.parametrize(
    ("named", "words"), [(False, "in F3, ctrl+s saves this one."), (True, "/model demo loads that.")]
)
async def test_a_pair_that_no_models_toml_has_as_it_is_is_not_tuned(
    toml: Path, jobs: Jobs, named: bool, words: str
) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        demo = app.chat.catalog.find("demo")
        other = replace(demo, spec=replace(demo.spec, draft=None))
        app.chat.catalog = Catalog((other,) if named else (), "demo")
        await app.chat.do("tune")
        await wait_until(pilot, lambda: words in " ".join(screen_text(app).replace("│", " ").split()))
        assert "ctrl+s" in {binding.key for binding in ModelsScreen.BINDINGS if isinstance(binding, Binding)}


async def test_a_data_folder_that_cannot_be_written_is_told_at_once(toml: Path, jobs: Jobs) -> None:
    (toml.parent / "tune").write_text("a file in its place")
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        await pilot.press("enter")
        await shown(app, pilot, "cannot be made")
        assert not jobs.made


def test_the_order_is_a_private_file(toml: Path, jobs: Jobs) -> None:
    tuning = Tuning(tunes(toml.parent, jobs, 0).tuning)
    assert tuning.begin("demo") == ""
    order = toml.parent / "tune" / "order.json"
    assert json.loads(order.read_text()) == {"pair": "demo", "on_cpu": False}
    assert order.stat().st_mode & 0o077 == 0
