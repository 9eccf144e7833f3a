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
from specchat.tui.app import SpecchatApp
from tests.fake import INFO, FakeEngine
from tests.parts import changed

SIZES = [(40, 12), (80, 24)]
MANY = replace(CATALOG, pairs=(*CATALOG.pairs, *(pair(f"pair{n}", f"Pair {n}") for n in range(12))))
TEXTS = {"help": "rejected", "ledger": "time."}
LISTS = {"models": 1, "what-if": 1, "choose-message": 12, "search-prompts": 12}
"""The prompts that each takes to be long."""


async def opened(app: SpecchatApp, pilot: Pilot[None], dialog: str, prompts: int = 1) -> None:
    await loaded(app, pilot)
    for number in range(prompts):
        await ask(app, pilot, f"prompt {number}")
    await app.chat.do(dialog)
    await wait_until(pilot, lambda: app.screen is not app.chat)
    await pilot.pause()


def app_with_much(reply: str = "Some words in answer.") -> SpecchatApp:
    presets, _ = load_presets([shipped("presets.toml")])
    return make_app(FakeEngine((reply,)), changed(LAUNCH, presets=presets), MANY)


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
        pages = 0
        while box.scroll_y < box.max_scroll_y:
            assert (pages := pages + 2) <= 3 * box.max_scroll_y // (2 * box.size.height) + 4
            await pilot.press("pagedown", "space")
        assert last in screen_text(app)
        # The wheel goes by lines: from the last of them on.
        box.scroll_to(y=max(box.max_scroll_y - 4, 0), animate=False)
        await wait_until(pilot, lambda: box.max_scroll_y == 0 or box.scroll_y < box.max_scroll_y)
        for _ in range(5):
            await pilot._post_mouse_events([events.MouseScrollDown], offset=(size[0] // 2, size[1] // 2))
        await wait_until(pilot, lambda: box.scroll_y == box.max_scroll_y and last in screen_text(app))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dialog", LISTS)
async def test_a_list_shows_what_is_marked(dialog: str, size: tuple[int, int]) -> None:
    # What-if tells nothing of a few steps.
    app = app_with_much("Some words in answer. " * (30 if dialog == "what-if" else 1))
    async with app.run_test(size=size) as pilot:
        await opened(app, pilot, dialog, LISTS[dialog])
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
        first, seen = app.screen.focused, set()
        while not seen or app.screen.focused is not first:
            await pilot.press("tab")
            await pilot.pause()
            focused = app.screen.focused
            assert focused is not None
            if isinstance(focused, OptionList):  # it may be taller than the window
                row = str(focused.get_option_at_index(focused.highlighted or 0).prompt)
                assert row[:20] in screen_text(app)
            else:
                assert app.screen.query_one("#dialog").region.contains_region(focused.region), focused
            assert focused.id not in seen
            seen.add(focused.id)
        assert {"theme", "stop", "strategy", "acceptance"} <= seen


async def test_the_help_has_the_keys_of_everywhere_after_those_of_here() -> None:
    app = app_with_much()
    async with app.run_test(size=(80, 240)) as pilot:
        await opened(app, pilot, "help")
        titles = ("in the prompt", "everywhere", "in the transcript", "commands", "token view")
        places = [screen_text(app).index(f"  {title}  ") for title in titles]
        assert places == sorted(places)
        assert "copied from the chat copied from" in screen_text(app)


async def test_a_hint_is_cut_between_its_words() -> None:
    app = app_with_much()
    async with app.run_test(size=(40, 15)) as pilot:
        await opened(app, pilot, "settings")
        for width in (40, 60):
            await pilot.resize_terminal(width, 15)
            await wait_until(pilot, lambda: " tab moves · esc keeps and closes " in screen_text(app))
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: "up and down change numbers · esc keeps" in screen_text(app))


async def test_why_a_strategy_cannot_be_used_can_be_read() -> None:
    reason = "this pair has no such heads; [pair.heads] in models.toml names them all, one after the other"
    statuses = [
        replace(one, available=False, reason=reason) if one.name == "medusa" else one for one in INFO.strategies
    ]
    app = make_app(FakeEngine(info=replace(INFO, strategies=tuple(statuses))))
    async with app.run_test(size=(80, 60)) as pilot:
        await opened(app, pilot, "settings")
        app.screen.query_one("#draft_length").focus()
        for width in (80, 60, 40):
            await pilot.resize_terminal(width, 60)
            await wait_until(pilot, lambda: reason in " ".join(screen_text(app).replace("│", " ").split()))
