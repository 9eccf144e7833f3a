"""Pictures by kitty's graphics protocol: sent once, then shown by plain cells, the protocol's Unicode placeholders.

A cell names its picture by its colour and its part of it by combining characters, so whatever moves, cuts or covers
cells does so with pictures. The terminal is told to answer nothing. kitty has placeholders since 0.28, and reports
sizes as Textual asks for them since 0.36, Ghostty both since 1.0: who reports sizes is taken to have placeholders.
Source: https://sw.kovidgoyal.net/kitty/graphics-protocol/#unicode-placeholders
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from io import BytesIO
from random import randrange
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary, finalize

from textual.content import Content
from textual.events import Resize
from textual.geometry import Region
from textual.message import Message
from textual.messages import InBandWindowResize

from specchat.attachments.pictures import AttachedPicture
from specchat.tui.text.pictures import SQUARE, Drawing, cells, scaled

if TYPE_CHECKING:
    from PIL.Image import Image

TERMINALS = "xterm-kitty", "xterm-ghostty"
BETWEEN = "TMUX", "STY", "ZELLIJ"
"""Variables of programs that stand between app and terminal, and show no placeholders."""
LARGEST = 800
"""Pixels a side of what is sent at most."""
MOST_PIXELS = 16 << 20
"""Pixels that the terminal holds at a time at most; further pictures are half blocks."""
_CHUNK = 4096
_IDS = range(1 << 16, 1 << 24)
_CELL = "\U0010eeee"
_NUMBERS = tuple(
    chr(one)
    for first, last in (
        *((0x305, 0x305), (0x30D, 0x30E), (0x310, 0x310), (0x312, 0x312), (0x33D, 0x33F), (0x346, 0x346)),
        *((0x34A, 0x34C), (0x350, 0x352), (0x357, 0x357), (0x35B, 0x35B), (0x363, 0x36F), (0x483, 0x487)),
        *((0x592, 0x595), (0x597, 0x599), (0x59C, 0x5A1), (0x5A8, 0x5A9), (0x5AB, 0x5AC), (0x5AF, 0x5AF)),
        *((0x5C4, 0x5C4), (0x610, 0x617), (0x657, 0x65B), (0x65D, 0x65E), (0x6D6, 0x6DC), (0x6DF, 0x6E2)),
    )
    for one in range(first, last + 1)
)
"""Combining characters that stand for 0, 1, 2, ...: the first ones of kitty's rowcolumn-diacritics.txt."""
_Key = tuple[str, int, int, bool]
"""A picture's digest, its columns and rows, and whether the whole picture was sent or its small copy."""


class KittyGraphics:
    """The pictures in the terminal's memory. Nothing is drawn before the terminal has reported its size."""

    def __init__(self, write: Callable[[str], None], later: Callable[[Callable[[], None]], object]) -> None:
        """`write` sends codes to the terminal; `later` calls a function in the app's loop, from any thread."""
        self.changed: Callable[[], None] = lambda: None
        """Has the pictures drawn again."""
        self._write, self._later = write, later
        self._known = self._anew = False
        self._cell = (10, round(10 * SQUARE))
        """Width and height of a cell in pixels."""
        self._shown = WeakValueDictionary[_Key, Drawing]()
        self._pixels: dict[int, int] = {}
        """Pixels by the ids of pictures that the terminal holds."""
        self._gone: list[int] = []
        self._asked: set[_Key] = set()
        self._whole: tuple[_Key, Image] | None = None
        """A whole picture that has been read, to be sent."""
        self._id = randrange(_IDS.start, _IDS.stop)

    def begin(self) -> None:
        """Have the pictures drawn for the first time."""
        self.changed()

    def answered(self, answer: Message) -> None:
        """The terminal may say, each time that it is entered, that it will report its size."""
        if isinstance(answer, InBandWindowResize) and answer.supported:
            self._anew = True

    def displayed(self, written: list[Region]) -> None:
        """Nothing: Textual has written pictures among other cells."""

    def sized(self, event: Resize) -> None:
        """The terminal reported its size."""
        if event.pixel_size is None or not min(event.pixel_size) or not min(event.size):
            return
        pixels, size = event.pixel_size, event.size
        cell = max(1, pixels.width // size.width), max(1, pixels.height // size.height)
        if self._anew:  # it may have forgotten all
            self._free(list(self._pixels))
            self._shown.clear()
        if self._anew or (self._known and cell != self._cell):
            self._known, self._anew, self._cell = True, False, cell
            self.changed()

    def draw(self, picture: AttachedPicture, small: "Image", width: int, *, unfolded: bool) -> Drawing | None:
        if not self._known:
            return None
        across, down = self._cell
        columns, rows = cells(small.size, width, unfolded, down / across)
        key = (picture.digest, columns, rows, unfolded)
        if (known := self._shown.get(key)) is not None:
            return known
        if self._whole is not None and self._whole[0] == key:
            small, self._whole = self._whole[1], None
            return self._sent(key, small)
        if unfolded:
            self._ask(key, picture, (min(LARGEST, columns * across), min(LARGEST, rows * down)))
        key = (picture.digest, columns, rows, False)
        return self._shown.get(key) or self._sent(key, small)

    def close(self) -> None:
        """Have the terminal forget all pictures."""
        self._known = self._anew = False
        self._free(list(self._pixels))

    def _sent(self, key: _Key, image: "Image") -> Drawing | None:
        if sum(self._pixels.values()) + image.width * image.height > MOST_PIXELS:
            return None
        self._id = self._id + 1 if self._id + 1 in _IDS else _IDS.start
        self._pixels[self._id] = image.width * image.height
        self._write(_transmission(self._id, key[1], key[2], image))
        colour = f"rgb({self._id >> 16},{self._id >> 8 & 255},{self._id & 255})"
        rows = ("".join(_CELL + _NUMBERS[row] + column for column in _NUMBERS[: key[1]]) for row in range(key[2]))
        found = self._shown[key] = Drawing(tuple(Content.styled(row, colour) for row in rows))
        finalize(found, self._let_go, self._id).atexit = False
        return found

    def _let_go(self, number: int) -> None:
        self._gone.append(number)
        self._later(self._sweep)

    def _sweep(self) -> None:
        gone, self._gone = self._gone, []
        self._free(gone)

    def _free(self, numbers: list[int]) -> None:
        held = [number for number in numbers if self._pixels.pop(number, None) is not None]
        if held:
            self._write("".join(f"\x1b_Ga=d,d=I,i={number},q=2\x1b\\" for number in held))

    def _ask(self, key: _Key, picture: AttachedPicture, size: tuple[int, int]) -> None:
        """Read the whole picture beside the app; it takes the place of its small copy once it is there."""
        if key in self._asked:
            return
        self._asked.add(key)

        def read(future: "asyncio.Future[Image | None]") -> None:
            if not future.cancelled() and (image := future.result()) is not None:
                self._asked.discard(key)
                self._whole = key, image
                self.changed()

        asyncio.get_running_loop().run_in_executor(None, scaled, picture, size).add_done_callback(read)


def can_show(environment: Mapping[str, str], color_system: str | None) -> bool:
    """True if the terminal is one that may have placeholders. Their cells take true colours."""
    named = environment.get("TERM") in TERMINALS or environment.get("TERM_PROGRAM") == "ghostty"
    between = any(environment.get(name) for name in BETWEEN) or "NO_COLOR" in environment
    return named and not between and color_system == "truecolor"


def _transmission(number: int, columns: int, rows: int, image: "Image") -> str:
    """The codes that send a picture, to be shown by cells."""
    written = BytesIO()
    image.save(written, "PNG")
    data = b64encode(written.getvalue()).decode()
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    heads = [f"a=T,U=1,q=2,f=100,i={number},c={columns},r={rows},", *["q=2,"] * (len(chunks) - 1)]
    more = [1] * (len(chunks) - 1) + [0]
    return "".join(f"\x1b_G{head}m={left};{chunk}\x1b\\" for head, left, chunk in zip(heads, more, chunks, strict=True))
