"""Changed themes and models.toml reach the running app."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH, loaded, make_app, screen_text, wait_until

from specchat.config.catalog import Catalog
from specchat.config.live import LiveFiles
from specchat.config.paths import user_paths
from specchat.tui import live as live_module
from specchat.tui.themes import textual_theme
from tests.fake import FakeEngine
from tests.parts import changed

THEME = 'name = "mine"\ndark = true\nprimary = "{colour}"\nbackground = "#101010"\n'
PAIR = 'schema = 1\n[[pair]]\nid = "{id}"\nname = "Mine"\ntarget = {{ path = "/models/x" }}\n'


def write(path: Path, text: str) -> None:
    """A new file has another time than the old one even on a coarse clock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.fixture
def files(tmp_path: Path) -> tuple[LiveFiles, Path]:
    paths = user_paths({"SPECCHAT_HOME": str(tmp_path)})
    return LiveFiles(paths, None), paths.config


def test_changes_are_noticed_once(files: tuple[LiveFiles, Path]) -> None:
    live, config = files
    assert not live.changed()
    write(config / "models.toml", PAIR.format(id="one"))
    assert live.changed()
    assert not live.changed()
    write(config / "models.toml", PAIR.format(id="two"))
    assert live.changed()
    (config / "models.toml").unlink()
    assert live.changed()


def test_what_cannot_be_read_leaves_what_was_there(files: tuple[LiveFiles, Path]) -> None:
    live, config = files
    write(config / "models.toml", "nonsense")
    write(config / "themes" / "bad.toml", "name = 3")
    fresh = live.read()
    assert fresh.catalog is None
    assert len(fresh.problems) == 2
    assert fresh.themes


async def test_the_app_takes_them_in(files: tuple[LiveFiles, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "LOOK_EVERY", 0.05)
    live, config = files
    write(config / "themes" / "mine.toml", THEME.format(colour="#ff0000"))
    live.changed()
    fresh = live.read()
    app = make_app(FakeEngine(), changed(LAUNCH, live=live, theme="mine"))
    app.register_theme(textual_theme(fresh.themes[-1]))
    app.theme = "mine"
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        red = app.theme_variables["primary"]
        write(config / "themes" / "mine.toml", THEME.format(colour="#00ff00"))
        write(config / "models.toml", PAIR.format(id="fresh"))
        await wait_until(pilot, lambda: app.theme_variables["primary"] != red)
        assert app.current_theme.primary == "#00ff00"
        await wait_until(pilot, lambda: "fresh" in [pair.spec.id for pair in app.chat.catalog.pairs])
        write(config / "models.toml", "[[pair]]\n")
        await wait_until(pilot, lambda: len(app._notifications) == 1)
        assert "fresh" in [pair.spec.id for pair in app.chat.catalog.pairs]


async def test_the_pair_that_is_loaded_is_marked_after_the_file_was_read_again() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        read_again = [replace(pair, sampling=replace(pair.sampling, temperature=0.1)) for pair in CATALOG.pairs]
        app.chat.catalog = Catalog((read_again[1], read_again[0]), "demo")
        await pilot.press("f3")
        await wait_until(pilot, lambda: "demo · loaded" in screen_text(app))
        await pilot.press("enter")
        assert app.session.loaded.pair is read_again[0]
