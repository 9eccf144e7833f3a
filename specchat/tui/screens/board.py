"""Dialogs that fill the window, are drawn row by row and may move."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.timer import Timer

from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import EMPTY, styled
from specchat.tui.widgets.plain import SOURCES, TEXT, Plain

_HZ = 12
GAP = " │ "
"""Between what stands side by side."""


class Canvas(Plain):
    """The canvas of a board."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "title", "value", "label", "key", "big", "slow", "good", "bad", "spark", "track", "box", "mark",
        "split-draft", "split-verify", "split-other",
        *TEXT, *SOURCES,
    }  # fmt: skip


class Board(Dialog[None]):
    """Subclasses say what there is to see. The timer runs only while something moves: `wake` after any change."""

    CSS_PATH = "board.tcss"

    def __init__(self) -> None:
        super().__init__()
        self._timer: Timer | None = None
        self._at = 0.0

    @property
    def moving(self) -> bool:
        """True if the picture changes by itself."""
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        raise NotImplementedError

    def rows(self, width: int, height: int) -> list[Content]:
        """The picture: at most `height` rows of at most `width` cells."""
        raise NotImplementedError

    def compose_content(self) -> ComposeResult:
        yield Canvas()

    def on_mount(self) -> None:
        self._timer = self.set_interval(1 / _HZ, self._tick, pause=True)
        self.wake()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        canvas = self.query_one(Canvas)
        width, height = canvas.content_size
        if width > 0 and height > 0:
            rows = self.rows(width, height)[:height]
            canvas.show(Content("\n").join(row.truncate(width, ellipsis=True) for row in rows))

    def wake(self) -> None:
        """Draw, and go on drawing while something moves."""
        self.draw()
        if self._timer is not None and self.moving:
            self._at = monotonic()
            self._timer.resume()

    def _tick(self) -> None:
        now = monotonic()
        self.advance(now - self._at)
        self._at = now
        self.draw()
        if self._timer is not None and not self.moving:
            self._timer.pause()


def side_by_side(left: Sequence[Content], right: Sequence[Content], room: int) -> Iterator[Content]:
    """Rows of `left`, at most `room` cells wide, with those of `right` behind them."""
    for row, more in zip_longest(left, right, fillvalue=EMPTY):
        yield row.pad_right(room - row.cell_length) + styled(GAP, ".box") + more
