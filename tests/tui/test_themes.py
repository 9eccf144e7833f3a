"""The app in every shipped theme."""

import pytest
from conftest import LAUNCH, THEMES, ask, loaded, make_app
from textual.color import Color
from textual.content import Content

from specchat.tui.app import SpecchatApp
from specchat.tui.themes import textual_theme
from specchat.tui.widgets.choice import Choice
from tests.fake import FakeEngine
from tests.parts import changed

SHOWN = [theme.name for theme in THEMES if theme.ansi or theme.name == "contrast"]
"""The terminal's own, whose colours are of another kind; the others are all shown in `test_contrast.py`."""
REPLY = "A **story**:\n\n```python\nlamp = 1  # lit\n```\n"


@pytest.mark.parametrize("name", SHOWN)
async def test_a_chat_shows_in_every_kind_of_theme(name: str) -> None:
    app = make_app(FakeEngine((REPLY,)), changed(LAUNCH, theme=name))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me a story.")
        for key in ("ctrl+t", "ctrl+o", "escape", "f1", "escape", "alt+x", "escape"):
            await pilot.press(key)
            await pilot.pause()
            assert app.export_screenshot()
        assert app.theme == name


async def test_the_chosen_theme_is_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpecchatApp, "refresh_css", lambda *_, **__: None)  # its colours are for the test above
    app = make_app(FakeEngine((REPLY,)), changed(LAUNCH, theme="contrast"))
    async with app.run_test(size=(80, 40)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        choice = app.screen.query_one("#theme", Choice)
        for _ in app.available_themes:
            choice.focus()
            await pilot.press("right")
            shown = choice.content
            assert isinstance(shown, Content)
            assert f"[{app.theme}]" in shown.plain[: choice.size.width]


def test_the_terminals_palette_is_passed_on() -> None:
    (theme,) = (theme for theme in THEMES if theme.ansi)
    colours = textual_theme(theme).to_color_system().generate()
    assert colours["background"] == "ansi_default"
    assert colours["spec-draft"] == "ansi_green"
    assert Color.parse(colours["ansi-background"]).ansi is not None
