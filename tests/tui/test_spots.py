"""Where pictures stand on the screen, and pixels laid over them by the app."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, flush, screen_text, wait_until
from test_entry import running
from test_resting import LAID, OTHER, PICTURE
from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Region
from textual.widget import Widget
from textual.widgets import Static

from specchat.attachments.files import Attachment
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.tui import resting, terminal
from specchat.tui.actions.table import ACTIONS
from specchat.tui.key_parser import TerminalAnswer
from specchat.tui.keys import Keys
from specchat.tui.spots import spots_of
from specchat.tui.widgets.chat_view import ChatView
from tests.chat.conftest import answer
from tests.fake import FakeEngine


class Alone(App[None]):
    """A transcript that fills the screen."""

    CSS = """Screen { layers: base front } ChatView { overflow-x: hidden }
        #cover { layer: front; width: 3; height: 1; display: none }"""

    def compose(self) -> Iterator[Widget]:
        chat = Conversation()
        chat.ask("what is this", (Attachment("a.png", picture=PICTURE),))
        yield ChatView(chat, Keys(ACTIONS))
        yield Static("x", id="cover")


async def test_spots_are_rows_in_view_that_nothing_covers() -> None:
    app = Alone()
    async with app.run_test(size=(60, 7)) as pilot:
        view, cover = app.query_one(ChatView), app.query_one("#cover")
        view.sync()
        for top, region, above in ((0, (3, 2, 32, 4), 0), (1, (3, 1, 32, 5), 0), (3, (3, 0, 32, 6), 1)):
            view.scroll_to(y=top, animate=False, immediate=True)
            await pilot.pause()
            assert [(one.cells, one.above, one.rows) for one in spots_of(view)] == [(Region(*region), above, 8)]
            shown = screen_text(app).split("\n")[:6]
            assert [(row.find("▀"), row.count("▀")) for row in shown if "▀" in row] == [(3, 32)] * region[3]
        cover.display = True
        for y, count in ((6, 1), (5, 0)):
            cover.styles.offset = (10, y)
            await pilot.pause()
            assert len(spots_of(view)) == count


@pytest.mark.parametrize("program", ["iTerm.app", ""])
async def test_the_app_lays_them_where_nothing_covers_them(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, chat = Store(tmp_path / "chats.db"), Conversation()
    for picture in (PICTURE, OTHER):
        turn = chat.ask("what is this", (Attachment("a.png", picture=picture),))
        store.add_turn(chat, turn, {})
        store.save_reply(chat, answer(chat, turn, "Red.\n\n" * 9))
    store.save_chat(chat, {})
    flush(store)
    written: list[str] = []
    monkeypatch.setattr(resting, "REST_S", 0.0)
    for name in ("TMUX", "STY", "ZELLIJ", "NO_COLOR", "LC_TERMINAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM_PROGRAM", program)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(terminal, "cell_pixels", lambda: (10, 20))
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, codes: written.append(codes))

    def laid() -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for line, column, image in LAID.findall("".join(written)):
            size = re.search(r"width=(\d+);height=(\d+)" if program else r'"1;1;(\d+)0;(\d+)#', image)
            assert size is not None
            found.append((int(line), int(column), int(size[1]), int(size[2]) // (1 if program else 20)))
        written.clear()
        return found

    def seen(true: Callable[[list[tuple[int, ...]]], bool]) -> Callable[[], bool]:
        """True once all that was laid since then is so."""
        found: list[tuple[int, ...]] = []
        return lambda: (found.extend(laid()), true(found))[1]

    async with running(FakeEngine(), replace(LAUNCH, store=store, chat=chat.key)) as (app, pilot):
        view = app.chat.transcript
        await wait_until(pilot, lambda: view.chat_rows.rows)
        if not program:
            assert "\x1b[c" in "".join(written)
            app.post_message(TerminalAnswer("c", (62, 4)))
        left = view.scrollable_content_region.x + 3
        await wait_until(pilot, seen(lambda found: (left, 16, 8) in [one[1:] for one in found]))
        view.scroll_to(y=4, animate=False)
        line = view.scrollable_content_region.y + 1
        await wait_until(pilot, seen(lambda found: any(one[:3] == (line, left, 32) and one[3] < 8 for one in found)))
        await pilot.press("f1")
        await wait_until(pilot, lambda: app.screen is not app.chat)
        laid()
        app.screen.refresh()
        await pilot.pause()
        assert (laid(), app._graphics and app._graphics._laid) == ([], set())
        await pilot.press("escape")
        await wait_until(pilot, seen(lambda found: any(one[:3] == (line, left, 32) for one in found)))
