"""Every dialog shows all it has, by keys and by the mouse's wheel, in the smallest window too."""

from dataclasses import replace

import pytest
from conftest import CATALOG, LAUNCH, ask, loaded, make_app, pair, screen_text, wait_until
from textual import events
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import OptionList

from specchat.config.paths import shipped
from specchat.config.presets import load_presets
from specchat.engine.fake import FakeEngine
from specchat.tui.app import SpecchatApp

SIZES = [(40, 12), (60, 15), (80, 24)]
MANY = replace(CATALOG, pairs=(*CATALOG.pairs, *(pair(f"pair{n}", f"Pair {n}") for n in range(12))))
TEXTS = {"help": "refused", "ledger": "time."}
LISTS = ("models", "what-if", "choose-message", "search-prompts")


async def opened(app: SpecchatApp, pilot: Pilot[None], dialog: str) -> None:
    await loaded(app, pilot)
    for number in range(12):
        await ask(app, pilot, f"prompt {number}")
    await app.chat.do(dialog)
    await wait_until(pilot, lambda: app.screen is not app.chat)
    await pilot.pause()


def app_with_much() -> SpecchatApp:
    presets, _ = load_presets([shipped("presets.toml")])
    return make_app(FakeEngine(("Some words in answer.",)), replace(LAUNCH, presets=presets), MANY)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", TEXTS)
async def test_a_text_is_read_to_its_end(dialog: str, size: tuple[int, int]) -> None:
    app = app_with_much()
    last = TEXTS[dialog]
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot, dialog)
        box = app.screen.query_one("#dialog", VerticalScroll)
        await pilot.press("down", "down")
        await wait_until(pilot, lambda: box.scroll_y == min(2, box.max_scroll_y))
        await pilot.press("end")
        await wait_until(pilot, lambda: last in screen_text(app))
        await pilot.press("home")
        await wait_until(pilot, lambda: box.scroll_y == 0)
        for _ in range(2 * box.max_scroll_y // box.size.height + 2):
            await pilot.press("pagedown", "space")
        await wait_until(pilot, lambda: last in screen_text(app))
        await pilot.press("home")
        await wait_until(pilot, lambda: box.scroll_y == 0)
        for _ in range(box.max_scroll_y + 1):
            await pilot._post_mouse_events([events.MouseScrollDown], offset=(size[0] // 2, size[1] // 2))
        await wait_until(pilot, lambda: last in screen_text(app))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", LISTS)
async def test_a_list_shows_what_is_marked(dialog: str, size: tuple[int, int]) -> None:
    app = app_with_much()
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot, dialog)
        options = app.screen.query_one(OptionList)
        for _ in range(options.option_count + 1):
            await pilot.press("down")
            await pilot.pause()
            assert options.highlighted is not None
            prompt = str(options.get_option_at_index(options.highlighted).prompt).splitlines()[0]
            assert prompt[: size[0] - 14].strip() in screen_text(app)


@pytest.mark.parametrize("size", SIZES)
async def test_every_setting_comes_into_view(size: tuple[int, int]) -> None:
    app = app_with_much()
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot, "settings")
        seen = set()
        for _ in range(40):
            await pilot.press("tab")
            await pilot.pause()
            focused = app.screen.focused
            assert focused is not None
            assert app.screen.query_one("#dialog").region.contains_region(focused.region), focused
            seen.add(focused.id)
        assert {"theme", "stop", "strategy", "acceptance"} <= seen
