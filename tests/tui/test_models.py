"""The models there are, in the app: shown, asked about, downloaded beside the chat, stopped, gone on with, loaded."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants  # noqa: F401  # reads the environment, which a test changes for a process of its own
import pytest
from conftest import CATALOG, LAUNCH, THEMES, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, status
from test_entry import write
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.chat.store import Store
from specchat.config.catalog import Catalog, Pair, load_catalog
from specchat.config.personas import Persona
from specchat.engine.fetch import download, transfer
from specchat.engine.fetch.source import Hub
from specchat.engine.process.client import EngineClient
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Load
from specchat.models.library import ModelPlaces
from specchat.tui.app import SpecchatApp
from specchat.tui.launch import Launch
from specchat.tui.screens.download import DownloadScreen
from specchat.tui.screens.models import ModelsScreen
from tests.engine.tiny import checkpoint
from tests.fake import FakeEngine
from tests.hub.server import LoopbackHub, loopback_hub, of_folder
from tests.models.made import gguf
from tests.parts import changed

REPO = "someone/tiny-1b"
FOUND = "maker/Tiny GGUF/m.gguf"
REMOTE = Pair(PairSpec("tiny", "Tiny 1B", ModelSource(repo=REPO)), strategy="lookup", licence="apache-2.0")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return of_folder(checkpoint(tmp_path_factory.mktemp("tiny") / "tiny"))


@pytest.fixture
def hub(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setattr(transfer, "RETRY_S", 0.01)
    with loopback_hub({REPO: files}) as served:
        yield served


@pytest.fixture
def places(hub: LoopbackHub, tmp_path: Path) -> ModelPlaces:
    return ModelPlaces(Hub(hub.endpoint, tmp_path / "cache"), (tmp_path / "lm",))


def app_with(places: ModelPlaces, engine: FakeEngine | None = None) -> SpecchatApp:
    catalog = Catalog((CATALOG.pairs[0], REMOTE), "demo")
    return make_app(engine or FakeEngine(), changed(LAUNCH, places=lambda: places), catalog)


async def shown(pilot: Pilot[None], words: str) -> None:
    await wait_until(pilot, lambda: words in screen_text(pilot.app))


async def choose(app: SpecchatApp, pilot: Pilot[None], name: str = "Tiny 1B") -> None:
    """Open the models and choose the one called `name`."""
    await pilot.press("f3")
    await wait_until(pilot, lambda: isinstance(app.screen, ModelsScreen))
    await shown(pilot, "fits")
    screen = app.screen
    assert isinstance(screen, ModelsScreen)
    await wait_until(pilot, lambda: screen.rows)
    screen.query_one(OptionList).highlighted = [offer.pair.name for offer in screen.rows].index(name)
    await pilot.press("enter")


async def begin(app: SpecchatApp, pilot: Pilot[None]) -> None:
    """Choose the model that is not here, and agree."""
    await choose(app, pilot)
    await shown(pilot, "to download")
    await pilot.press("enter")
    await wait_until(pilot, lambda: app.session.fetching.task is not None)


async def test_a_stranger_comes_to_a_chat_with_a_downloaded_model_in_six_keys(
    hub: LoopbackHub, places: ModelPlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(places.hub.cache))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the engine's process fetches nothing
    engine = EngineClient(tmp_path / "engine.log")
    shipped = load_catalog(None)
    catalog = Catalog((shipped.find("demo"), REMOTE), "demo")
    launch = changed(
        Launch(catalog.pairs[0], store=Store()), fallback=catalog.pairs[0], themes=THEMES, places=lambda: places
    )
    app = SpecchatApp(engine, catalog, launch)
    keys = iter(("f3", "down", "enter", "enter"))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await wait_until(pilot, lambda: app.session.loaded.info is not None, 120)
            await pilot.press(next(keys))
            await shown(pilot, "Tiny 1B")
            await pilot.press(next(keys), next(keys))
            await wait_until(pilot, lambda: isinstance(app.screen, DownloadScreen))
            await shown(pilot, "to download")
            await pilot.press(next(keys))
            await wait_until(pilot, lambda: app.session.loaded.id == "tiny", 30)
            await wait_until(pilot, lambda: app.session.loaded.info is not None, 120)
            app.chat.prompt.insert("hello")
            await pilot.press("enter")
            await wait_until(pilot, lambda: app.session.last_reply is not None and app.session.last_reply.ended, 60)
            assert app.session.last_reply is not None
            assert app.session.last_reply.state == "finished"
    finally:
        engine.close()
    assert not list(keys)
    assert hub.sent["model.safetensors"] == len(hub.repos[REPO]["model.safetensors"])


async def test_a_download_is_asked_about_and_not_begun_unasked(hub: LoopbackHub, places: ModelPlaces) -> None:
    engine = FakeEngine()
    app = app_with(places, engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        await choose(app, pilot)
        await shown(pilot, f"{REPO}: {sum(map(len, hub.repos[REPO].values())) / 1e3:.0f} kB to download.")
        text = screen_text(app)
        assert "It goes to" in text
        largest = max(hub.repos[REPO], key=lambda name: len(hub.repos[REPO][name]))
        assert f"files: {largest} " in text
        assert "Licence: apache-2.0." in text
        await pilot.press("escape")
        await pilot.pause(0.2)
        assert "model.safetensors" not in hub.sent
        assert app.session.loaded.id == "demo"
        assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo"]
        await pilot.press(*"/model tiny", "enter")
        await shown(pilot, "to download")


async def test_what_this_installation_lacks_is_told_before_a_download(
    places: ModelPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specchat.models.machine.missing_packages", lambda: {"bitsandbytes"})
    small = replace(REMOTE, spec=replace(REMOTE.spec, target=ModelSource(repo=REPO, quant="nf4")))
    app = make_app(FakeEngine(), changed(LAUNCH, places=lambda: places), Catalog((CATALOG.pairs[0], small), "demo"))
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        await choose(app, pilot)
        await shown(pilot, "Before it can be loaded, it needs bitsandbytes")


async def test_a_download_runs_beside_the_chat_and_its_pair_is_loaded_when_the_reply_has_ended(
    hub: LoopbackHub, places: ModelPlaces
) -> None:
    hub.stalls.set()
    async with being_answered(LONG, (100, 30), 100, "word") as (app, pilot, clock):
        app.session.fetching.places = lambda: places
        app.chat.catalog = Catalog((CATALOG.pairs[0], REMOTE), "demo")
        await begin(app, pilot)
        await wait_until(pilot, lambda: "· download" in status(app))
        assert app.session.reply is not None
        await pilot.press("f1")
        await pilot.pause(0.1)
        await pilot.press("escape")
        hub.stalls.clear()
        await wait_until(pilot, lambda: app.session.fetching.task.state == "done")
        await pilot.pause(1.0)
        assert app.session.loaded.id == "demo"
        clock.now = 1e6
        await wait_until(pilot, lambda: app.session.loaded.id == "tiny")
        assert app.session.last_reply is not None
        assert app.session.last_reply.state == "finished"


def largest_part(places: ModelPlaces) -> int:
    """Bytes that there are of the largest file that is not whole: one that becomes whole meanwhile is gone."""
    sizes = [0]
    for path in (places.hub.folder(REPO) / "blobs").glob("*.specchat.incomplete"):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)


async def test_a_download_is_stopped_and_gone_on_with_by_key(hub: LoopbackHub, places: ModelPlaces) -> None:
    hub.stalls.set()
    app = app_with(places)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await begin(app, pilot)
        others = max(len(data) for name, data in hub.repos[REPO].items() if name != "model.safetensors")
        await wait_until(pilot, lambda: largest_part(places) > others)
        await wait_until(pilot, lambda: "downloading Tiny 1B: " in status(app))
        task = app.session.fetching.task
        assert task is not None
        await pilot.press("f3", "ctrl+x")
        hub.stalls.clear()
        await wait_until(pilot, lambda: task.state == "stopped")
        await shown(pilot, "stopped")
        kept = largest_part(places)
        assert kept > 0
        hub.sent = {}
        await pilot.press("ctrl+x", "escape")
        await wait_until(pilot, lambda: app.session.loaded.id == "tiny")
        assert hub.sent["model.safetensors"] == len(hub.repos[REPO]["model.safetensors"]) - kept


async def test_what_fails_is_told_and_the_pair_stays(hub: LoopbackHub, places: ModelPlaces) -> None:
    app = app_with(places)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        hub.file_status = 404
        await begin(app, pilot)
        await wait_until(pilot, lambda: "has no someone/tiny-1b" in status(app))
        assert app.session.loaded.id == "demo"
        assert app.session.loaded.info is not None
        hub.file_status = 0
        await pilot.press("f3", "ctrl+x", "escape")
        await wait_until(pilot, lambda: app.session.loaded.id == "tiny")


async def test_a_downloaded_pair_that_cannot_be_loaded_leaves_the_one_before(places: ModelPlaces) -> None:
    engine = FakeEngine()
    app = app_with(places, engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        engine.fail_load("model", "It is broken.")
        await begin(app, pilot)
        await wait_until(pilot, lambda: "It is broken. Still using demo." in status(app))
        await wait_until(pilot, lambda: app.session.loaded.info is not None)
        assert app.session.loaded.id == "demo"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda hub: setattr(hub, "status", 404), "has no someone/tiny-1b"),
        (lambda hub: hub.repos.update({REPO: {"config.json": b"{}", "x.bin": b""}}), "has no weights as safetensors"),
        (lambda hub: setattr(hub, "gated", True), "is gated"),
    ],
)
async def test_what_the_hub_says_is_told_before_anything(
    hub: LoopbackHub, places: ModelPlaces, spoil: Callable[[LoopbackHub], None], words: str
) -> None:
    spoil(hub)
    app = app_with(places)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await choose(app, pilot)
        await shown(pilot, words)


async def test_without_room_enter_does_nothing(
    hub: LoopbackHub, places: ModelPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specchat.models.pull.free_room", lambda _: 1000)
    monkeypatch.setattr(download, "free_room", lambda _: 1000)
    app = app_with(places)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await choose(app, pilot)
        await shown(pilot, "There is not enough room for it.")
        await pilot.press("enter")
        assert isinstance(app.screen, DownloadScreen)
        assert "model.safetensors" not in hub.sent


@pytest.mark.parametrize("size", [(40, 12), (120, 36)])
async def test_the_models_fit_any_window(size: tuple[int, int], places: ModelPlaces, tmp_path: Path) -> None:
    gguf(tmp_path / "lm" / "maker" / "tiny" / "found.gguf")
    shipped = load_catalog(None)
    app = make_app(
        FakeEngine(), changed(LAUNCH, places=lambda: places), replace(shipped, pairs=(*shipped.pairs, REMOTE))
    )
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await pilot.press("f3")
        await shown(pilot, "27 MB")
        rows = screen_text(app).splitlines()
        header = next(row for row in rows if "model " in row)
        assert "size" in header
        assert "fits" in header
        assert ("licence" in header) == (size[0] >= 120)
        assert any("demo" in row and "27 MB" in row and "CPU" in row for row in rows)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        assert len(screen.rows) == sum(not pair.variant_of for pair in shipped.pairs) + 2
        screen.query_one(OptionList).highlighted = [offer.pair.name for offer in screen.rows].index(
            "maker/tiny/found.gguf"
        )
        await wait_until(pilot, lambda: "maker/tiny" in screen_text(app))


async def test_a_found_model_is_loaded_with_what_could_draft_for_it(places: ModelPlaces, tmp_path: Path) -> None:
    checkpoint(tmp_path / "own" / "big", num_hidden_layers=12)
    checkpoint(tmp_path / "own" / "small", num_hidden_layers=1)
    engine = FakeEngine()
    app = app_with(replace(places, own=(tmp_path / "own",)), engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f3")
        await shown(pilot, "big")
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        screen.query_one(OptionList).highlighted = [offer.pair.name for offer in screen.rows].index("big")
        await shown(pilot, "could draft")
        await pilot.press("ctrl+d")
        await wait_until(pilot, lambda: app.session.loaded.name == "big + small")
        load = [request.pair for request in engine.requests if isinstance(request, Load)][-1]
        assert load.target.path == str(tmp_path / "own" / "big")
        assert load.draft == ModelSource(path=str(tmp_path / "own" / "small"))


async def test_a_pair_asked_for_at_the_start_is_asked_about_over_the_one_that_is_here(places: ModelPlaces) -> None:
    engine = FakeEngine()
    catalog = Catalog((CATALOG.pairs[0], REMOTE), "demo")
    launch = changed(LAUNCH, pair=REMOTE, fallback=CATALOG.pairs[0], places=lambda: places)
    app = make_app(engine, launch, catalog)
    async with app.run_test(size=(100, 30)) as pilot:
        await shown(pilot, "to download")
        await wait_until(pilot, lambda: app.session.loaded.id == "demo" and app.session.loaded.info is not None)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.loaded.id == "tiny")
        assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "tiny"]


async def test_a_chats_own_pair_is_not_downloaded_unasked(places: ModelPlaces) -> None:
    engine = FakeEngine()
    app = app_with(places, engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        app.session.chat_pair = "tiny"
        app.chat.prompt.insert("hello")
        await wait_until(pilot, lambda: f"{REPO} is not here; F3 downloads it" in status(app))
        assert app.session.loaded.id == "demo"
        for _ in range(3):  # however often it is asked, no other pair answers
            app.chat.say("")
            await pilot.press("enter")
            await wait_until(pilot, lambda: f"{REPO} is not here; F3 downloads it" in status(app))
        assert app.chat.prompt.text == "hello"
        assert not app.session.conversation.turns
        assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo"]


async def test_a_chat_whose_pair_nobody_knows_says_what_to_do(places: ModelPlaces) -> None:
    app = app_with(places)
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        app.session.chat_pair = "moved"
        app.chat.prompt.insert("hello")
        words = "nor this machine a model of that name; F3 chooses another"
        await wait_until(pilot, lambda: words in " ".join(status(app).split()))


async def test_a_chat_with_a_model_of_another_program_goes_on_with_it(places: ModelPlaces, tmp_path: Path) -> None:
    file = gguf(tmp_path / "lm" / "maker" / "Tiny GGUF" / "m.gguf")
    engine = FakeEngine()
    app = app_with(places, engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        app.session.chat_pair = "maker-Tiny-GGUF-m.gguf"
        app.chat.prompt.insert("hello")
        await pilot.press("enter")  # at once: the prompt waits for the model that is looked for
        await wait_until(pilot, lambda: app.session.conversation.turns)
        loads = [request.pair for request in engine.requests if isinstance(request, Load)]
        assert [load.target.path for load in loads[1:]] == [str(file)]


async def test_a_persona_brings_a_model_that_was_found(places: ModelPlaces, tmp_path: Path) -> None:
    gguf(tmp_path / "lm" / "maker" / "Tiny GGUF" / "m.gguf")
    personas = tuple(Persona(name, f"Be {name}.", pair=pair) for name, pair in (("lost", "nowhere"), ("own", FOUND)))
    launch = changed(LAUNCH, places=lambda: places, personas=personas)
    app = make_app(FakeEngine(), launch, Catalog((CATALOG.pairs[0], REMOTE), "demo"))
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        await write(app, pilot, "/persona lost", "enter")
        await wait_until(pilot, lambda: "persona lost goes without its pair: there is no pair nowhere" in status(app))
        assert (app.session.conversation.system, app.session.loaded.id) == ("Be lost.", "demo")
        await write(app, pilot, "/persona own", "enter")
        await wait_until(pilot, lambda: app.session.loaded.id == "maker-Tiny-GGUF-m.gguf")


async def test_where_the_hub_does_not_answer_enter_asks_again(hub: LoopbackHub, places: ModelPlaces) -> None:
    hub.status = 503
    app = app_with(places)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await choose(app, pilot)
        await shown(pilot, "enter asks again · esc closes")
        hub.status = 0
        await pilot.press("enter")
        await shown(pilot, "enter downloads, then loads · esc closes")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.loaded.id == "tiny")
