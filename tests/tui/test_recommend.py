"""Measuring what is fastest, in the app: asked for, followed, shown as a table, and written after a yes."""

from pathlib import Path
from typing import Any

import pytest
from conftest import ask, loaded, screen_text, wait_until
from test_chat import LONG, slow, status
from textual.pilot import Pilot
from tunes import SIZE, Jobs, chatting, models_toml

from specchat.config.catalog import load_catalog
from specchat.engine.protocol.requests import Load
from specchat.models import words
from specchat.tui.app import SpecchatApp
from specchat.tui.screens import beside_dialog
from specchat.tui.widgets.plain import FactRows
from specchat.tune.plan import recommend_memory
from specchat.tune.registry import give_back, register
from specchat.tune.shelf import Tuned
from tests.fake import INFO, FakeEngine

ROWS = [["draft x10", 2.1, 1.9, 2.3, 12], ["lookup x4", 1.2, 1.1, 1.3, 6], ["no row"], "nor this"]
LINES = [
    "draft x10 writes 2.10 times as fast as plain decoding. The pair has draft x5, with 1.80.",
    "Measured on 9 prompts.",
]
CHOICE = {"strategy": "draft", "length": 10}


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return models_toml(tmp_path)


async def begin(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await app.chat.do("recommend")
    await wait_until(pilot, lambda: "enter begins" in screen_text(app))
    await pilot.press("enter")
    await wait_until(pilot, lambda: app.session.recommending.busy)


async def measured(app: SpecchatApp, pilot: Pilot[None], jobs: Jobs, **result: Any) -> None:
    """Measure, and open the dialog with the result."""
    await begin(app, pilot)
    jobs.last.end("done", **{"rows": ROWS, "lines": LINES, "choice": CHOICE, **result})
    await wait_until(pilot, lambda: "/recommend shows the table" in status(app))
    await app.chat.do("recommend")
    await wait_until(pilot, lambda: "x plain" in screen_text(app))


@pytest.mark.parametrize(("prompts", "chats"), [(20, ("--chats",)), (4, ())])
async def test_it_is_measured_on_the_chats_where_they_have_prompts_enough(
    toml: Path, jobs: Jobs, prompts: int, chats: tuple[str, ...]
) -> None:
    async with chatting(toml, jobs, prompts=prompts) as (app, pilot):
        await begin(app, pilot)
        assert jobs.last.arguments == ("recommend", "demo", "--json", "--dry-run", "--minutes", "3", *chats)


async def test_the_dialog_counts_the_pair_twice_and_begins_only_where_memory_holds_that(
    toml: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = recommend_memory(INFO)
    assert needed > 2 * INFO.load.memory
    monkeypatch.setattr(beside_dialog, "free_memory", lambda: needed - 1)
    async with chatting(toml, jobs) as (app, pilot):
        await app.chat.do("recommend")
        await wait_until(pilot, lambda: "are free. Close other programs" in screen_text(app))
        assert f"It takes {words.size(needed)} of memory" in " ".join(screen_text(app).replace("│", "").split())
        await pilot.press("enter")
        assert not jobs.made
        monkeypatch.setattr(beside_dialog, "free_memory", lambda: needed)
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))


@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_the_list_of_models_offers_it_and_the_dialog_shows_progress_and_table(
    toml: Path, jobs: Jobs, size: tuple[int, int]
) -> None:
    async with chatting(toml, jobs, size=size) as (app, pilot):
        await pilot.press("f3")
        await wait_until(pilot, lambda: "ctrl+r measures" in screen_text(app))
        await pilot.press("ctrl+r")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: jobs.made)
        jobs.last.progress = {"what": "round 2, 6 left: draft x5", "fraction": 0.4}
        await wait_until(pilot, lambda: "recommend: round 2, 6 left: draft x5 · 40%" in status(app))
        await app.chat.do("recommend")
        await wait_until(pilot, lambda: "x stops" in screen_text(app))
        others = [["draft x10, draft in int8", 1.05, 1.01, 1.09, 9, True], ["one prompt", 1.02, 0.0, None, 1, True]]
        jobs.last.end("done", rows=ROWS, others=others, lines=LINES, choice=CHOICE)
        await wait_until(pilot, lambda: "enter writes it" in screen_text(app))
        rows = [" ".join(row.split()) for row in screen_text(app).replace("│", "|").splitlines()]
        for row_words in (
            "draft x10 writes 2.10 times as fast as plain decoding.",
            "| x plain 95 % prompts |",
            "| draft x10 2.10 1.90-2.30 12 |",
            "| lookup x4 1.20 1.10-1.30 6 |",
            "| x best 95 % prompts |",
            "| draft x10, draft in int8 1.05 1.01-1.09 9 |",
            "| one prompt 1.02 unsure 1 |",
        ):
            assert any(row_words in row for row in rows), row_words
        assert app.screen.query_one(FactRows).get_component_rich_style("head").bold  # the row that would be written


async def test_nothing_is_written_before_a_yes_and_then_it_is_used_at_once(toml: Path, jobs: Jobs) -> None:
    before, engine = toml.read_bytes(), FakeEngine()
    async with chatting(toml, jobs, engine) as (app, pilot):
        await measured(app, pilot, jobs)
        await pilot.press("escape")
        assert toml.read_bytes() == before
        await app.chat.do("recommend")
        await wait_until(pilot, lambda: "enter writes it" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: toml.read_bytes() != before)
        pair = load_catalog(toml).find("demo")
        assert (pair.strategy, pair.lengths["draft"]) == ("draft", 10)
        await wait_until(pilot, lambda: app.session.loaded.lengths.get("draft") == 10)
        assert (app.session.settings.strategy, app.session.settings.draft_length) == ("draft", 10)
        assert sum(isinstance(request, Load) for request in engine.requests) == 1
        assert app.session.recommending.result is None


@pytest.mark.parametrize(
    ("setting", "quant", "frequent"),
    [
        ({"name": "draft in 8 bits", "key": "draft", "keys": {"quant": "int8"}}, "int8", ""),
        ({"name": "draft vocabulary", "key": "draft_vocabulary", "value": "demo.json"}, None, "demo.json"),
    ],
)
async def test_a_setting_that_is_faster_is_written_too_and_the_pair_loaded_anew(
    toml: Path, jobs: Jobs, setting: dict[str, object], quant: str | None, frequent: str
) -> None:
    engine = FakeEngine()
    async with chatting(toml, jobs, engine) as (app, pilot):
        await measured(app, pilot, jobs, setting=setting)
        await pilot.press("enter")
        await wait_until(pilot, lambda: sum(isinstance(request, Load) for request in engine.requests) == 2)
        await loaded(app, pilot)
        spec = load_catalog(toml).find("demo").spec
        assert spec.draft is not None
        assert (spec.draft.path, spec.draft.quant) == (str(toml.parent / "draft"), quant)
        assert spec.draft_vocabulary == (str(toml.with_name(frequent)) if frequent else None)


async def test_a_tuned_draft_that_is_faster_is_used(toml: Path, jobs: Jobs, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    one = register(Tuned("demo-draft", "draft", "demo", 0.0, "", key="draft"), made, tmp_path / "tuned", toml)
    give_back(one, toml)
    async with chatting(toml, jobs) as (app, pilot):
        await measured(app, pilot, jobs, setting={"name": one.id, "tuned": one.id})
        await pilot.press("enter")
        await wait_until(pilot, lambda: "is written" in status(app))
        draft = load_catalog(toml).find("demo").spec.draft
        assert draft is not None
        assert draft.path == str(one.folder)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("choice", [None, {"strategy": 3, "length": "x"}, "draft"])
async def test_where_nothing_is_faster_nothing_can_be_written_but_measured_again(
    toml: Path, jobs: Jobs, choice: object
) -> None:
    before = toml.read_bytes()
    async with chatting(toml, jobs) as (app, pilot):
        await measured(app, pilot, jobs, choice=choice)
        assert "enter writes it" not in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert toml.read_bytes() == before
        await pilot.press("a")
        await wait_until(pilot, lambda: "enter begins" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: len(jobs.made) == 2)


async def test_it_waits_while_a_reply_is_written_and_can_be_stopped(toml: Path, jobs: Jobs) -> None:
    engine, clock = slow(LONG)
    async with chatting(toml, jobs, engine) as (app, pilot):
        await begin(app, pilot)
        await ask(app, pilot, "hi", wait=False)
        assert jobs.last.paused
        clock.now = 10_000
        await wait_until(pilot, lambda: not jobs.last.paused)
        await app.chat.do("recommend", "stop")
        assert jobs.last.state == "stopping"
        jobs.last.end("stopped")
        await wait_until(pilot, lambda: app.session.recommending.job is None)
        assert app.session.recommending.result is None
        await begin(app, pilot)
        jobs.last.end("failed", "The text by lookup x4 differs from plain decoding's.")
        await wait_until(pilot, lambda: "differs from plain decoding's." in status(app))


async def test_tune_and_measurement_exclude_each_other(toml: Path, jobs: Jobs) -> None:
    async with chatting(toml, jobs) as (app, pilot):
        await begin(app, pilot)
        await app.chat.do("tune")
        await wait_until(pilot, lambda: "/recommend stop ends that." in screen_text(app))
        await pilot.press("escape")
        jobs.last.end("stopped")
        await wait_until(pilot, lambda: app.session.recommending.job is None)
        app.session.tuning.begin("demo")
        await app.chat.do("recommend")
        await wait_until(pilot, lambda: "A tune runs. /tune stop ends it." in screen_text(app))
        await pilot.press("enter")
        assert len(jobs.made) == 2
