"""The list of models filtered by typing, the hub searched from it, and the downloads of one model."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import LAUNCH, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from specchat.config.catalog import Catalog, Pair, Requires, load_catalog
from specchat.engine.fetch import transfer
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Load
from specchat.models.library import ModelPlaces
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.download import DownloadScreen
from specchat.tui.screens.models import ModelsScreen
from tests.engine.tiny import checkpoint
from tests.fake import FakeEngine
from tests.hub.hostile import as_json, hostile_hub
from tests.hub.server import LoopbackHub, loopback_hub, of_folder
from tests.models.made import gguf
from tests.parts import changed

WHOLE, FILE = "maker/Tiny-1B", "someone/Tiny-1B-GGUF"


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, bytes]]:
    made = tmp_path_factory.mktemp("tiny")
    tensors = of_folder(checkpoint(made / "tiny"))
    return {WHOLE: tensors, FILE: {"tiny-Q4_K_M.gguf": gguf(made / "t.gguf").read_bytes(), "tiny-F16.gguf": b"GGUF"}}


@pytest.fixture
def hub(repos: dict[str, Mapping[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setattr(transfer, "RETRY_S", 0.01)
    with loopback_hub(repos) as served:
        yield served


def app_at(endpoint: str, home: Path, engine: FakeEngine | None = None, *more: Pair) -> SpecchatApp:
    places = ModelPlaces(Hub(endpoint, home / "cache"), own=(home / "own",))
    shipped = load_catalog(None)
    catalog = Catalog((shipped.find("demo"), shipped.find("gemma-3-4b"), shipped.find("qwen3-4b"), *more), "demo")
    return make_app(engine or FakeEngine(), changed(LAUNCH, places=lambda: places), catalog)


async def opened(app: SpecchatApp, pilot: Pilot[None]) -> ModelsScreen:
    await loaded(app, pilot)
    await pilot.press("f3")
    await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen) and bool(app.screen.rows))
    screen = app.screen
    assert isinstance(screen, ModelsScreen)
    return screen


def names(screen: ModelsScreen) -> list[str]:
    return [offer.pair.name for offer in screen.rows]


def hint(screen: ModelsScreen) -> str:
    return str(screen.query_one("#dialog").border_subtitle)


async def test_typed_words_filter_names_models_and_licences(hub: LoopbackHub, tmp_path: Path) -> None:
    checkpoint(tmp_path / "own" / "mine")
    app = app_at(hub.endpoint, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(app, pilot)
        assert names(screen) == ["demo", "mine", "Gemma 3 4B + 270M", "Qwen3 4B + 0.6B"]
        await pilot.press(*"QWEN 4b")
        await wait_until(pilot, lambda: names(screen) == ["Qwen3 4B + 0.6B"])
        assert screen.query_one(OptionList).highlighted == 0
        await pilot.press(*["backspace"] * 7, *"gemma")  # the owner of no pair, and a licence
        await wait_until(pilot, lambda: names(screen) == ["Gemma 3 4B + 270M"])
        await pilot.press(*["backspace"] * 5)
        await wait_until(pilot, lambda: len(screen.rows) == 4)
        await pilot.press("down", "down", "up")
        assert screen._marked is not None
        assert screen._marked.pair.name == "mine"
    assert not [path for path in hub.asked if path == "/api/models"]  # nothing is sent while one types


@pytest.mark.parametrize(("repo", "name"), [(WHOLE, WHOLE), (FILE, f"{FILE} tiny-Q4_K_M.gguf")])
async def test_a_model_of_the_hub_is_found_downloaded_and_loaded(
    hub: LoopbackHub, tmp_path: Path, repo: str, name: str
) -> None:
    engine = FakeEngine()
    app = app_at(hub.endpoint, tmp_path, engine)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny")
        await wait_until(pilot, lambda: "nothing here is called “tiny”: enter searches 127" in screen_text(app))
        await wait_until(pilot, lambda: hint(screen).startswith("enter searches the hub"))
        await pilot.press("enter")
        await wait_until(pilot, lambda: names(screen) == [WHOLE, f"{FILE} tiny-Q4_K_M.gguf"])
        await wait_until(pilot, lambda: all(offer.size for offer in screen.rows))
        screen.query_one(OptionList).highlighted = names(screen).index(name)
        await wait_until(pilot, lambda: "7 a month" in screen_text(app))
        assert "download 27" in screen_text(app) or "download 1" in screen_text(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, DownloadScreen) and "to download" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.loaded.name == name)
        load = [request.pair for request in engine.requests if isinstance(request, Load)][-1]
        assert (load.target.repo, load.target.file) == (repo, "tiny-Q4_K_M.gguf" if repo == FILE else None)
        screen = await opened(app, pilot)
        await wait_until(pilot, lambda: name in names(screen))
        assert not next(offer for offer in screen.rows if offer.pair.name == name).missing


async def test_the_hub_is_searched_by_a_key_beside_what_is_here(hub: LoopbackHub, tmp_path: Path) -> None:
    checkpoint(tmp_path / "own" / "my-tiny")
    app = app_at(hub.endpoint, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny")
        await wait_until(pilot, lambda: "ctrl+f" in hint(screen))
        await pilot.press("ctrl+f")
        await wait_until(pilot, lambda: names(screen)[:2] == ["my-tiny", WHOLE])
        await wait_until(pilot, lambda: "ctrl+f" not in hint(screen))
        await pilot.press(*"-1b-g")  # what was found is filtered too
        await wait_until(pilot, lambda: names(screen) == [f"{FILE} tiny-Q4_K_M.gguf"])
        await pilot.press(*["backspace"] * 9)
        await wait_until(pilot, lambda: names(screen)[-1] == f"{FILE} tiny-Q4_K_M.gguf" and len(screen.rows) == 6)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda hub: setattr(hub, "status", 429), "was asked too often: try again in some minutes"),
        (lambda hub: hub.repos.clear(), "has no model for “tiny” that is read here"),
    ],
)
async def test_a_search_that_fails_is_a_sentence_and_can_be_repeated(
    hub: LoopbackHub, tmp_path: Path, spoil: Callable[[LoopbackHub], None], words: str
) -> None:
    repos = dict(hub.repos)
    spoil(hub)
    app = app_at(hub.endpoint, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny", "enter")
        await wait_until(pilot, lambda: words in " ".join(screen_text(app).replace("│", " ").split()))
        assert screen.query_one(Input).value == "tiny"
        hub.status, hub.repos = 0, repos
        await pilot.press("enter")
        await wait_until(pilot, lambda: WHOLE in names(screen))
        assert app.session.loaded.info is not None


async def test_without_a_network_the_list_stays(tmp_path: Path) -> None:
    app = app_at("http://127.0.0.1:9", tmp_path)
    async with app.run_test(size=(40, 12)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"demo", "ctrl+f")
        await wait_until(pilot, lambda: "No connection to" in screen_text(app))
        assert names(screen) == ["demo"]
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.screen is app.chat)


async def test_names_of_a_hub_are_cut_and_cleaned(tmp_path: Path) -> None:
    files = [{"rfilename": f"{'m' * 90}-Q4_0.gguf"}]
    long = f"someone/{'very-long-name-' * 5}"[:90].rstrip("-")
    found = [
        {"id": long, "siblings": files, "tags": ["license:\x1b[31m[bold]mit"], "gated": "manual"},
        {"id": "a/\u202egpj.exe", "siblings": files},
        {"id": "a/\x1b]0;owned\x07", "siblings": files},
    ]
    with hostile_hub(lambda *_: as_json(found)) as served:
        app = app_at(served.endpoint, tmp_path)
        async with app.run_test(size=(60, 20)) as pilot:
            screen = await opened(app, pilot)
            await pilot.press(*"zzz", "enter")
            await wait_until(pilot, lambda: len(screen.rows) == 1)
            await wait_until(pilot, lambda: "someone/very-long" in screen_text(app))
            read = screen_text(app)
            await pilot.press("tab")
            for _ in range(30):
                await pilot.press("down")
                await pilot.pause()
                read += screen_text(app)
            assert "accept its terms" in read
            assert "[bold]mit" in read
            assert "owned" not in read
            assert "\x1b" not in read


async def test_a_download_of_the_hub_that_was_left_is_still_listed(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.stalls.set()
    app = app_at(hub.endpoint, tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny", "enter")
        await wait_until(pilot, lambda: WHOLE in names(screen))
        await pilot.press("enter")
        await wait_until(pilot, lambda: isinstance(app.screen, DownloadScreen) and "to download" in screen_text(app))
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.fetching.busy)
        screen = await opened(app, pilot)
        await wait_until(pilot, lambda: WHOLE in names(screen) and "ctrl+x stops" in hint(screen))
        await pilot.press("ctrl+x")
        hub.stalls.clear()
        await wait_until(pilot, lambda: "ctrl+x goes on" in hint(screen))


async def test_downloads_of_one_model_are_one_row_and_a_key_shows_the_next(hub: LoopbackHub, tmp_path: Path) -> None:
    def pair(id_: str, disk: float, ram: float, of: str = "") -> Pair:
        spec = PairSpec(id_, f"Tiny {id_}", ModelSource(repo=f"a/{id_}"))
        return Pair(spec, variant_of=of, requires=Requires(ram_gib=ram, disk_gib=disk), declared=True)

    pairs = (pair("whole", 8, 1), pair("tight", 1, 9e6, "whole"), pair("small", 2, 1, "whole"), pair("other", 3, 1))
    app = app_at(hub.endpoint, tmp_path, None, *pairs)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny")
        await wait_until(pilot, lambda: names(screen) == ["Tiny small", "Tiny other"])  # tight does not fit
        await wait_until(pilot, lambda: "ctrl+o other download" in hint(screen))
        assert "download 2.1 GB" in screen_text(app)
        assert "whole, download 8.6 GB, CPU, 1.0 GiB" in screen_text(app)
        shown = []
        for _ in range(3):
            await pilot.press("ctrl+o")
            shown.append(names(screen)[0])
        assert shown == ["Tiny whole", "Tiny tight", "Tiny small"]
        await pilot.press("ctrl+o", "enter")
        await wait_until(pilot, lambda: isinstance(app.screen, DownloadScreen))
        await wait_until(pilot, lambda: "has no a/whole" in screen_text(app))


async def test_a_variant_that_is_here_stands_for_itself(hub: LoopbackHub, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "here")
    local = Pair(PairSpec("local", "Tiny local", ModelSource(path=str(folder))), variant_of="whole", declared=True)
    whole = Pair(PairSpec("whole", "Tiny whole", ModelSource(repo="a/whole")), declared=True)
    app = app_at(hub.endpoint, tmp_path, None, whole, local)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await opened(app, pilot)
        await pilot.press(*"tiny")
        await wait_until(pilot, lambda: names(screen) == ["Tiny local", "Tiny whole"])
        assert [offer.variants for offer in screen.rows] == [(), ()]


async def test_a_row_is_chosen_by_a_click(hub: LoopbackHub, tmp_path: Path) -> None:
    checkpoint(tmp_path / "own" / "mine")
    app = app_at(hub.endpoint, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(app, pilot)
        await wait_until(pilot, lambda: "mine" in screen_text(app))
        await pilot.click(OptionList, offset=(3, names(screen).index("mine")))
        await wait_until(pilot, lambda: app.session.loaded.id == "mine")
