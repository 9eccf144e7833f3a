"""Pictures by sixel or iTerm2's protocol: pixels over half blocks, as long as these stay where they are.

Text that is written over such pixels takes them away, so the half blocks that Textual writes do when anything moves.
Terminals keep nothing. Sixel is asked for by primary device attributes, of which number 4 stands for it, and the size
of cells by xterm's report 16 where the kernel does not know it.
Source: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from textual.events import Resize
from textual.geometry import Region
from textual.message import Message

from specchat.attachments.pictures import AttachedPicture
from specchat.tui.key_parser import TerminalAnswer
from specchat.tui.kitty import BETWEEN, LARGEST
from specchat.tui.sixel import COLOURS, inline, sixel
from specchat.tui.spots import Spot
from specchat.tui.text.pictures import Drawing, cells, half_blocks, scaled, small_copy

if TYPE_CHECKING:
    from PIL.Image import Image

Protocol = Literal["sixel", "iterm2"]
REST_S = 0.3
"""Seconds without a change before pixels are laid."""
_MOST = 4
"""Pictures that have pixels at a time."""
_HELD = 8
"""Encoded pictures that are held, to be laid again."""
_BETWEEN_TERMS = "tmux", "screen"
"""Beginnings of TERM in tmux and screen, which comes along over SSH."""
_CELL, _ATTRIBUTES = "\x1b[16t", "\x1b[c"
_COLOURS = f"\x1b[?1;3;{COLOURS}S"
"""Has xterm give as many colours: its VT340 has 16."""
_Key = tuple[str, int, int, int, int, tuple[int, int]]


class RestingPictures:
    """Draws half blocks, and lays pixels over them once the screen is at rest there."""

    def __init__(
        self,
        protocol: Protocol,
        write: Callable[[str], None],
        cell: Callable[[], tuple[int, int] | None],
        spots: Callable[[], list[Spot]],
        redraw: Callable[[], object],
    ) -> None:
        """`write` sends codes to the terminal in one frame; `cell` gives width and height of a cell in pixels, or None;
        `spots` says where pictures stand, with nothing over them, and `redraw` has them written again."""
        self.changed: Callable[[], None] = lambda: None
        """Has the pictures drawn again."""
        self._protocol, self._write, self._cell_of, self._spots, self._redraw = protocol, write, cell, spots, redraw
        self._known = False
        self._reported: tuple[int, int] | None = None
        self._cell: tuple[int, int] | None = None
        self._before: list[Spot] = []
        self._laid: set[Spot] = set()
        self._encoded: dict[_Key, str] = {}
        self._encoding = False
        self._timer: asyncio.TimerHandle | None = None

    # The terminal

    def begin(self) -> None:
        """Ask the terminal, which may answer late or never."""
        self._known = self._protocol == "iterm2"
        self._write(_CELL if self._known else _CELL + _ATTRIBUTES)
        self._measure()

    def answered(self, answer: Message) -> None:
        if not isinstance(answer, TerminalAnswer):
            return
        if answer.kind == "c" and 4 in answer.numbers[1:] and not self._known:
            self._known = True
            self._write(_COLOURS)
        elif answer.kind == "t" and len(answer.numbers) == 3 and min(answer.numbers):
            self._reported = answer.numbers[2], answer.numbers[1]
        self._measure()

    def sized(self, _: Resize) -> None:
        """The window may have another size, or its cells."""
        if self._known and self._cell_of() is None:
            self._write(_CELL)
        self._measure()

    def _measure(self) -> None:
        cell = (self._cell_of() or self._reported) if self._known else None
        if cell != self._cell:
            self._cell = cell
            self.changed()

    def draw(self, picture: AttachedPicture, small: "Image", width: int, *, unfolded: bool) -> Drawing | None:
        if self._cell is None:
            return None
        tall = self._cell[1] / self._cell[0]
        columns, rows = cells(small.size, width, unfolded, tall)
        if self._protocol == "sixel":  # no terminal enlarges it
            over = max(columns * self._cell[0], rows * self._cell[1]) / LARGEST
            width = max(1, int(columns / over)) if over > 1 else width
        return Drawing(half_blocks(picture.small, width, unfolded, tall))

    # The screen

    def displayed(self, written: list[Region]) -> None:
        """Textual has written these cells."""
        if self._cell is None:
            return
        spots = self._spots()
        touched = {spot for spot in spots if any(region.overlaps(spot.cells) for region in written)}
        gone = self._laid.difference(spots)
        if not all(any(region.contains_region(row) for region in written) for spot in gone for row in spot.by_row):
            self._redraw()
        self._laid -= gone | touched
        if touched or spots != self._before:
            self._before = spots
            self._stop()
            if not self._laid.issuperset(spots):
                self._timer = asyncio.get_running_loop().call_later(REST_S, self._rest)

    def close(self) -> None:
        """Lay nothing any more."""
        self._known, self._cell = False, None
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        """Lay the pictures that are encoded, and encode the next one beside the app."""
        self._timer = None
        if self._cell is None or self._encoding:
            return
        for spot in self._before[:_MOST]:
            if spot in self._laid:
                continue
            key = _key(spot, self._cell)
            codes = self._encoded.pop(key, None)
            if codes is None:
                self._encode(key, spot)
                return
            self._encoded[key] = codes  # the last one used
            self._laid.add(spot)
            if codes:
                self._write(f"\x1b7\x1b[{spot.cells.y + 1};{spot.cells.x + 1}H{codes}\x1b8")

    def _encode(self, key: _Key, spot: Spot) -> None:
        def encoded(future: asyncio.Future[str]) -> None:
            self._encoding = False
            if future.cancelled():
                return
            self._encoded[key] = future.result()
            for oldest in list(self._encoded)[:-_HELD]:
                del self._encoded[oldest]
            if self._timer is None:  # else it has moved meanwhile
                self._rest()

        self._encoding = True
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, _codes, self._protocol, spot, key[-1]).add_done_callback(encoded)


def protocol_of(environment: Mapping[str, str], color_system: str | None) -> Protocol | None:
    """The protocol that the terminal has by its name; "sixel" where it is to be asked, None where nothing is laid."""
    between = any(environment.get(name) for name in BETWEEN) or environment.get("TERM", "").startswith(_BETWEEN_TERMS)
    if between or color_system is None or "NO_COLOR" in environment:
        return None
    named = environment.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2"
    return "iterm2" if named else "sixel"


def _key(spot: Spot, cell: tuple[int, int]) -> _Key:
    return spot.digest, spot.cells.width, spot.cells.height, spot.above, spot.rows, cell


def _codes(protocol: Protocol, spot: Spot, cell: tuple[int, int]) -> str:
    """The codes that lay the pixels of a spot; none where the picture cannot be read."""
    columns, rows = spot.cells.width, spot.cells.height
    width, height = columns * cell[0], spot.rows * cell[1]
    if protocol == "iterm2":
        shrink = max(1.0, max(width, height) / LARGEST)
        width, height = max(1, round(width / shrink)), max(1, round(height / shrink))
    image = scaled(spot.picture, (width, height)) or small_copy(spot.picture.small)
    if image is None:
        return ""
    row = height / spot.rows
    whole = image.resize((width, height))
    part = whole.crop((0, round(spot.above * row), width, round((spot.above + rows) * row)))
    return sixel(part) if protocol == "sixel" else inline(part, columns, rows)
