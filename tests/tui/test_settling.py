"""What tests of the app wait for is drawn, once."""

import pytest
import settling
from conftest import loaded, make_app
from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from tests.fake import FakeEngine


class Counted(Widget):
    """A row that counts how often it is drawn."""

    DEFAULT_CSS = "Counted { height: 1; dock: top; }"
    drawn = 0

    def render_line(self, y: int) -> Strip:
        self.drawn += y == 0
        return Strip([Segment("row")])


@pytest.mark.parametrize("every", [False, True])
async def test_frames_on_the_way_are_left_out(every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "EVERY_FRAME", every)
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        row = Counted()
        await app.screen.mount(row)
        await pilot.pause()
        before = row.drawn

        def change() -> None:
            for _ in range(3):
                row.refresh()
                app.screen._compositor.update_widgets({row})
                app.screen._compositor_refresh()

        app.screen.call_later(change)
        await pilot.pause()
        assert (row.drawn - before > 2) if every else (row.drawn - before == 1)
        assert not app.screen._compositor._dirty_regions


class Broken(Counted):
    def render_line(self, y: int) -> Strip:
        raise ArithmeticError(y)


async def shown(row: Counted) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await app.screen.mount(row)
        await pilot.pause()


async def test_what_cannot_be_drawn_is_told() -> None:
    await shown(Counted())
    with pytest.raises(ArithmeticError):
        await shown(Broken())
