"""The list of what was tuned, in the app: read, used, given up and deleted, and taken into the chat."""

from pathlib import Path
from time import time

import pytest
from conftest import ask, screen_text, wait_until
from test_chat import LONG, slow
from tunes import SIZE, Jobs, chatting, models_toml

from specchat.config.catalog import load_catalog
from specchat.engine.protocol.requests import Load
from specchat.tune.registry import register
from specchat.tune.shelf import Tuned
from tests.fake import FakeEngine


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return models_toml(tmp_path)


def tuned(toml: Path, number: int) -> Tuned:
    """Register a draft of the pair demo, with a file of two megabytes."""
    made = toml.parent / f"made-{number}"
    made.mkdir()
    (made / "model.safetensors").write_bytes(bytes(2_000_000))
    about = Tuned(
        "demo-draft", "draft", "demo", time(), f"{number} prompts of 5 saved \x1b[31mchats", {},
        {"accepted": 0.41, "tokens_per_second": 80.0}, {"accepted": 0.6, "tokens_per_second": 1100.0}, key="draft",
    )  # fmt: skip
    return register(about, made, toml.parent / "tuned", toml)


def draft(toml: Path) -> str | None:
    spec = load_catalog(toml).find("demo").spec.draft
    assert spec is not None
    return spec.path


@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_its_data_figures_and_use_are_told(toml: Path, jobs: Jobs, size: tuple[int, int]) -> None:
    tuned(toml, 20)
    tuned(toml, 30)
    async with chatting(toml, jobs, size=size) as (app, pilot):
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "30 prompts of 5 saved" in screen_text(app))
        shown = screen_text(app)
        assert "demo-draft-2, draft of demo · in use" in shown
        assert "2.0 MB" in shown
        assert "41% before, 60% after, on held-out prompts" in shown
        assert "80 before, 1,100 after" in shown
        assert "\x1b[31m" not in shown
        await pilot.press("down")
        await wait_until(pilot, lambda: "used by            no pair" in screen_text(app))


async def test_another_is_used_given_up_and_deleted_with_its_bytes(toml: Path, jobs: Jobs) -> None:
    original = draft(toml)
    first, second = tuned(toml, 20), tuned(toml, 30)
    engine = FakeEngine()
    async with chatting(toml, jobs, engine) as (app, pilot):

        def used() -> str | None:
            loads = [request for request in engine.requests if isinstance(request, Load)]
            assert loads[-1].pair.draft is not None
            return loads[-1].pair.draft.path

        await ask(app, pilot, "hi")
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "in use" in screen_text(app))
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: used() == str(first.folder))
        assert draft(toml) == str(first.folder)
        await wait_until(pilot, lambda: "enter takes it out of use" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: used() == original)
        await pilot.press("x", "up", "x")
        await pilot.pause()
        assert second.folder.exists()
        assert first.folder.exists()
        await pilot.press("x")
        await wait_until(pilot, lambda: "demo-draft-2" not in screen_text(app))
        assert not second.folder.exists()
        assert len(app.session.conversation.turns) == 1
        assert used() == original


async def test_what_is_chosen_while_a_reply_is_written_is_loaded_after_it(toml: Path, jobs: Jobs) -> None:
    made = tuned(toml, 20)
    engine, clock = slow(LONG)
    async with chatting(toml, jobs, engine) as (app, pilot):
        await ask(app, pilot, "hi", wait=False)
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "in use" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: draft(toml) != str(made.folder))
        await pilot.press("escape")
        assert sum(isinstance(request, Load) for request in engine.requests) == 1
        clock.now = 10_000
        await wait_until(pilot, lambda: sum(isinstance(request, Load) for request in engine.requests) == 2)
        reply = app.session.conversation.turns[0].reply
        assert reply is not None
        assert reply.state == "finished"


async def test_nothing_tuned_says_how_to_begin(toml: Path, jobs: Jobs) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "Nothing was tuned yet." in screen_text(app))
        await pilot.press("enter", "x", "escape")


async def test_a_models_file_that_cannot_be_written_is_told(
    toml: Path,
    jobs: Jobs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = tuned(toml, 20)

    def refused(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(toml))

    monkeypatch.setattr(Path, "write_text", refused)
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("tuned")
        await wait_until(pilot, lambda: "in use" in screen_text(app))
        await pilot.press("x", "x")
        await wait_until(pilot, lambda: "No space left on device" in screen_text(app))
        assert made.folder.exists()
