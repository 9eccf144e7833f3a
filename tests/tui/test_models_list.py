"""The list of models: what can be read and done there, and models that were found written into models.toml."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from conftest import LAUNCH, loaded, make_app, screen_text, wait_until
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.cli import app as cli_app
from specchat.config.catalog import Catalog, folder_source, load_catalog, local_pair
from specchat.config.paths import Paths, user_paths
from specchat.engine.fetch.source import Hub
from specchat.models.library import ModelPlaces
from specchat.tui.actions.models import model_values
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.models import ModelsScreen
from specchat.tui.widgets.completions import Completions
from tests.engine.tiny import SPECIAL, checkpoint
from tests.fake import FakeEngine
from tests.models.made import gguf
from tests.parts import changed


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / "home"))
    return user_paths()


@pytest.fixture
def start(paths: Paths, tmp_path: Path) -> Callable[[], SpecchatApp]:
    places = ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "cache"), own=(tmp_path / "own",))
    launch = changed(LAUNCH, places=lambda: places, add=partial(cli_app._add, paths, None))
    shipped = load_catalog(None)
    catalog = Catalog((shipped.find("demo"), shipped.find("qwen3-8b")), "demo")
    return lambda: make_app(FakeEngine(), launch, catalog)


async def mark(app: SpecchatApp, pilot: Pilot[None], name: str) -> ModelsScreen:
    """Open the models and go to the one called `name`."""
    await loaded(app, pilot)
    await pilot.press("f3")
    await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and name in names(app.screen))
    screen = app.screen
    assert isinstance(screen, ModelsScreen)
    screen.query_one(OptionList).highlighted = names(screen).index(name)
    await pilot.pause()
    return screen


def names(screen: ModelsScreen) -> list[str]:
    return [offer.pair.name for offer in screen.rows]


def offered(app: SpecchatApp) -> list[str]:
    """What is offered to complete what is typed."""
    found = app.chat.query_one(Completions).completion
    return [choice.text for choice in found.choices] if found is not None else []


def hint(screen: ModelsScreen) -> str:
    return str(screen.query_one("#dialog", VerticalScroll).border_subtitle)


async def test_ones_own_models_are_completed_before_any_list_was_opened(
    start: Callable[[], SpecchatApp], tmp_path: Path
) -> None:
    checkpoint(tmp_path / "own" / "big", num_hidden_layers=2)
    app = start()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"/model bi")
        await wait_until(pilot, lambda: "big" in offered(app))
        await pilot.press("tab")
        assert app.chat.prompt.text == "/model big"


async def test_a_found_model_is_written_with_the_draft_that_is_here_and_stays_marked(
    start: Callable[[], SpecchatApp], paths: Paths, tmp_path: Path
) -> None:
    checkpoint(tmp_path / "own" / "big", num_hidden_layers=12)
    checkpoint(tmp_path / "own" / "small", num_hidden_layers=1)
    paths.models_file.parent.mkdir(parents=True)
    paths.models_file.write_text("# mine\nschema = 1\n")
    app = start()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await mark(app, pilot, "big")
        assert "ctrl+s saves to models.toml" in hint(screen)
        assert [id_ for id_, _ in model_values(app.chat)] == [
            "demo",
            "big",
            "small",
            "qwen3-8b",
        ]  # as /model offers them
        await pilot.press("ctrl+s", "ctrl+s")
        await wait_until(pilot, lambda: "big + small" in names(screen))
        await wait_until(pilot, lambda: "written to" in screen_text(app))
        assert screen._marked is not None
        assert screen._marked.pair.id == "big"
        assert "ctrl+s" not in hint(screen)
        await pilot.press("ctrl+s")
        await pilot.pause(0.2)
        assert [pair.id for pair in app.chat.catalog.pairs if pair.id.startswith("big")] == ["big"]
        assert paths.models_file.read_text().startswith("# mine\nschema = 1\n")
        pair = load_catalog(paths.models_file).find("big")
        assert pair.spec.target.path == str(tmp_path / "own" / "big")
        assert pair.spec.draft is not None
        assert pair.spec.draft.path == str(tmp_path / "own" / "small")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.loaded.id == "big")


async def test_the_loaded_pair_is_listed_and_written_with_its_draft(
    start: Callable[[], SpecchatApp], paths: Paths, tmp_path: Path
) -> None:
    big, small = (checkpoint(tmp_path / name, num_hidden_layers=layers) for name, layers in (("big", 12), ("small", 1)))
    app = start()
    async with app.run_test(size=(120, 40)) as pilot:
        await mark(app, pilot, "demo")
        await pilot.press("escape")
        pair = local_pair(folder_source(big), folder_source(small))
        app.session.load(pair, chosen=True)
        await wait_until(pilot, lambda: app.session.loaded.info is not None and app.session.loaded.id == pair.id)
        await pilot.press("f3")
        await wait_until(pilot, lambda: "big + small · loaded" in screen_text(app))
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        assert screen._marked is not None
        assert screen._marked.pair.id == pair.id
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "written to" in screen_text(app))
        written = load_catalog(paths.models_file).find("big")
        assert (written.name, written.spec.sources) == ("big + small", pair.spec.sources)


async def test_no_column_is_cut_once_the_list_is_longer_than_its_room(tmp_path: Path) -> None:
    places = ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "cache"))
    app = make_app(FakeEngine(), changed(LAUNCH, places=lambda: places), load_catalog(None))
    async with app.run_test(size=(120, 36)) as pilot:
        screen = await mark(app, pilot, "Qwen3 8B + 0.6B, GGUF")
        await wait_until(pilot, lambda: "apache-2.0" in screen_text(app))
        rows = [row for row in screen_text(app).splitlines() if "apache-2.0" in row or "gemma" in row]
        assert screen.query_one(OptionList).max_scroll_y
        assert not [row for row in rows if "…" in row]


async def test_the_marked_row_stays_where_it_is_when_the_list_is_filled_anew(tmp_path: Path) -> None:
    places = ModelPlaces(Hub("http://127.0.0.1:1", tmp_path / "cache"))
    app = make_app(FakeEngine(), changed(LAUNCH, places=lambda: places), load_catalog(None))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await mark(app, pilot, "demo")
        await pilot.press(*["pagedown"] * 2, *["up"] * 3)
        options = screen.query_one(OptionList)
        before = options.highlighted, options.scroll_y
        assert before[1]
        screen._list_again()
        await pilot.pause()
        assert (options.highlighted, options.scroll_y) == before


async def test_a_gguf_file_is_written_for_its_backend(
    start: Callable[[], SpecchatApp], paths: Paths, tmp_path: Path
) -> None:
    file = gguf(tmp_path / "own" / "maker" / "found.gguf")
    app = start()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await mark(app, pilot, "maker/found.gguf")
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "found" in names(screen))
        spec = load_catalog(paths.models_file).find("found").spec
        assert (spec.backend, spec.target.path) == ("gguf", str(file))


async def test_what_cannot_be_written_is_told_and_the_file_stays(
    start: Callable[[], SpecchatApp], paths: Paths, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "own" / "big")
    app = start()
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await mark(app, pilot, "big")
        (folder / "tokenizer.json").unlink()
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: "not written: " in screen_text(app))
        assert "big" in names(screen)
        assert not paths.models_file.exists()
        checkpoint(tmp_path / "again", special=SPECIAL)
        (folder / "tokenizer.json").write_bytes((tmp_path / "again" / "tokenizer.json").read_bytes())
        await pilot.press("ctrl+s")
        await wait_until(pilot, lambda: paths.models_file.exists())


async def test_pairs_that_are_declared_are_not_added(start: Callable[[], SpecchatApp], paths: Paths) -> None:
    app = start()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await mark(app, pilot, "demo")
        assert "ctrl+s" not in hint(screen)
        await pilot.press("ctrl+s")
        await pilot.pause(0.1)
        assert not paths.models_file.exists()


@pytest.mark.rotated(2)
@pytest.mark.parametrize("size", [(60, 15), (80, 24)])
async def test_all_that_is_known_of_a_model_can_be_read(
    start: Callable[[], SpecchatApp], size: tuple[int, int]
) -> None:
    app = start()
    async with app.run_test(size=size) as pilot:
        screen = await mark(app, pilot, "demo")
        await wait_until(pilot, lambda: "tab " in hint(screen))
        assert "demo/draft" not in screen_text(app)
        await pilot.press("tab")
        read = ""
        for _ in range(20):
            await pilot.press("down")
            await pilot.pause(0.02)
            read += re.sub(r"[^\w/]", "", screen_text(app))  # a path goes on in the next line
        assert "demo/draft" in read
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.screen is not screen)


async def test_what_is_known_of_a_model_is_wrapped_beside_the_scrollbar(start: Callable[[], SpecchatApp]) -> None:
    app = start()
    async with app.run_test(size=(40, 12)) as pilot:
        screen = await mark(app, pilot, "demo")
        await wait_until(pilot, lambda: screen.query_one("#about", VerticalScroll).max_scroll_y)
        await wait_until(pilot, lambda: "fits" in screen_text(app).rpartition("──  │")[2])
        facts = screen_text(app).rpartition("──  │")[2].split("\n")[1:-1]
        assert {fact[3:16].strip() for fact in facts} <= {"", "fits", "size", "licence", "strategies"}


async def test_the_hints_name_what_can_be_done_in_the_room_there_is(
    start: Callable[[], SpecchatApp], tmp_path: Path
) -> None:
    checkpoint(tmp_path / "own" / "big", num_hidden_layers=12)
    checkpoint(tmp_path / "own" / "small", num_hidden_layers=1)
    app = start()
    async with app.run_test(size=(120, 30)) as pilot:
        screen = await mark(app, pilot, "big")
        whole = "enter loads · ctrl+d with a draft · ctrl+s saves to models.toml"
        await wait_until(pilot, lambda: hint(screen).startswith(whole))
        await pilot.resize_terminal(60, 15)
        await wait_until(pilot, lambda: hint(screen) == "enter loads · ctrl+d drafts · ctrl+s saves · tab more")
        screen.query_one(OptionList).highlighted = names(screen).index("Qwen3 8B + 0.6B")
        await wait_until(pilot, lambda: hint(screen) == "enter downloads · tab reads on · esc closes")


async def test_the_built_in_pair_says_how_own_models_come_here() -> None:
    shipped = load_catalog(None)
    catalog = Catalog((shipped.find("demo"), shipped.find("qwen3-8b")), "demo")
    app = make_app(FakeEngine(), changed(LAUNCH, fallback=shipped.find("demo")), catalog)
    async with app.run_test(size=(120, 36)) as pilot:
        await mark(app, pilot, shipped.find("demo").name)
        await wait_until(pilot, lambda: "model_folders in config.toml" in screen_text(app))
        assert isinstance(app.screen, ModelsScreen)
        app.screen.query_one(OptionList).highlighted = names(app.screen).index(shipped.find("qwen3-8b").name)
        await wait_until(pilot, lambda: "model_folders" not in screen_text(app))


async def test_keys_that_come_before_the_list_are_for_it_and_what_is_here_comes_first(
    start: Callable[[], SpecchatApp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(tmp_path / "own" / "mine")
    look, app = ModelsScreen._look, start()
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        with monkeypatch.context() as patch:
            patch.setattr(ModelsScreen, "_look", lambda _: None)
            await pilot.press("f3")
            await wait_until(pilot, lambda: "looking for the models on this machine" in screen_text(app))
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        await pilot.press("down", "enter", "down")
        await asyncio.to_thread(look, screen)
        await wait_until(pilot, lambda: app.session.loaded.id == "mine")
        await pilot.press("f3")
        await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and bool(app.screen.rows))
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        assert names(screen) == ["demo", "mine", "Qwen3 8B + 0.6B"]  # at once, as they were listed before
        assert screen.query_one(OptionList).highlighted == 1


async def test_a_chat_that_waits_for_its_pair_shows_no_other_ones_context(start: Callable[[], SpecchatApp]) -> None:
    app = start()
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("hi")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.last_reply is not None and app.session.last_reply.ended)
        context = f"/ {app.session.loaded.info.context:,}" if app.session.loaded.info else ""
        await wait_until(pilot, lambda: context in screen_text(app))
        app.session.bind({"pair": "box", "pair_name": "The box"})
        app.chat.redraw()
        await wait_until(pilot, lambda: "The box, loaded when you write" in screen_text(app))
        assert context not in screen_text(app)
        app.chat.prompt.insert("more")
        await pilot.pause(0.5)
        assert context not in screen_text(app)
