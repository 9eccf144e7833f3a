"""Pixels over half blocks: laid where pictures rest, and nowhere else."""

import asyncio
import re
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image
from textual.events import Resize
from textual.geometry import Region

from specchat.attachments.pictures import attached
from specchat.tui import resting
from specchat.tui.key_parser import KeyParser, TerminalAnswer
from specchat.tui.kitty import LARGEST
from specchat.tui.resting import RestingPictures, protocol_of
from specchat.tui.spots import Spot
from specchat.tui.text.pictures import drawing
from tests.drawn import drawn

PICTURE = attached(drawn("PNG", (400, 200)))
OTHER = attached(drawn("PNG", (200, 200)))
LAID = re.compile(r"\x1b7\x1b\[(\d+);(\d+)H(\x1bP.*?\x1b\\|\x1b\][^\x07]*\x07)?\x1b8")
SCREEN = Region(0, 0, 100, 40)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "REST_S", 0.0)


def spot(y: int, picture: object = PICTURE, above: int = 0, height: int = 8) -> Spot:
    return Spot(picture, picture.digest, Region(3, y, 32, height), above, 8)  # type: ignore[arg-type,attr-defined]


class Screen:
    """The terminal's side, and Textual's, of a `RestingPictures`."""

    def __init__(self, protocol: resting.Protocol = "iterm2", cell: tuple[int, int] | None = (10, 20)) -> None:
        self.codes: list[str] = []
        self.spots: list[Spot] = []
        self.redrawn = 0
        self.pictures = RestingPictures(protocol, self.codes.append, lambda: cell, lambda: self.spots, self._redraw)
        self.pictures.begin()

    def _redraw(self) -> None:
        self.redrawn += 1

    def shows(self, *spots: Spot, written: Region = SCREEN) -> None:
        """Textual has written these cells, and pictures stand there."""
        self.spots = list(spots)
        self.pictures.displayed([written])

    async def laid(self) -> list[tuple[int, int]]:
        """The lines and columns at which images were laid since the last call, once nothing is waited for."""
        while self.pictures._timer is not None or self.pictures._encoding:
            await asyncio.sleep(0.001)
        found = [(int(line), int(column)) for line, column, image in LAID.findall("".join(self.codes)) if image]
        self.codes.clear()
        return found


@pytest.mark.parametrize("protocol", ["iterm2", "sixel"])
async def test_it_is_laid_once_and_again_when_textual_wrote_there(protocol: resting.Protocol) -> None:
    screen = Screen(protocol)
    screen.pictures.answered(TerminalAnswer("c", (62, 4)))
    screen.shows(spot(5), spot(20, OTHER))
    assert await screen.laid() == [(6, 4), (21, 4)]
    screen.shows(*screen.spots, written=Region(0, 30, 100, 5))
    assert await screen.laid() == []
    screen.shows(*screen.spots, written=Region(10, 7, 4, 1))
    assert await screen.laid() == [(6, 4)]
    screen.shows(spot(4), spot(19, OTHER))
    assert await screen.laid() == [(5, 4), (20, 4)]
    screen.shows()
    assert (await screen.laid(), screen.redrawn) == ([], 0)


async def test_nothing_is_laid_while_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "REST_S", 3600.0)
    screen = Screen()
    for y in range(9, 4, -1):
        screen.shows(spot(y))
        await asyncio.sleep(0)
    assert LAID.findall("".join(screen.codes)) == []
    monkeypatch.setattr(resting, "REST_S", 0.0)
    screen.shows(spot(5))
    assert await screen.laid() == [(6, 4)]
    screen.pictures.close()
    screen.shows(spot(9))
    assert await screen.laid() == []


async def test_one_that_moves_while_it_is_encoded_waits_until_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    screen.shows(spot(5))
    while not screen.pictures._encoding:
        await asyncio.sleep(0)
    monkeypatch.setattr(resting, "REST_S", 3600.0)
    screen.shows(spot(9))
    while screen.pictures._encoding:
        await asyncio.sleep(0.001)
    assert LAID.findall("".join(screen.codes)) == []
    monkeypatch.setattr(resting, "REST_S", 0.0)
    screen.shows(spot(10))
    assert await screen.laid() == [(11, 4)]


async def test_cells_that_textual_has_not_written_are_written_again() -> None:
    screen = Screen()
    screen.shows(spot(5))
    await screen.laid()
    screen.shows(written=Region(0, 5, 100, 7))
    assert (await screen.laid(), screen.redrawn) == ([], 1)
    screen.shows(written=Region(0, 5, 100, 7))
    assert screen.redrawn == 1


async def test_nothing_is_encoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Spot] = []
    codes = resting._codes
    monkeypatch.setattr(resting, "_codes", lambda *given: (encoded.append(given[1]), codes(*given))[1])
    screen = Screen()
    for y in (5, 6, 5):
        screen.shows(spot(y))
        assert await screen.laid() == [(y + 1, 4)]
    assert len(encoded) == 1
    for height in range(1, 1 + 2 * resting._HELD):
        screen.shows(spot(5, height=height % 8 + 1, above=height // 8))
        await screen.laid()
    assert len(screen.pictures._encoded) == resting._HELD


async def test_a_few_at_a_time() -> None:
    screen = Screen()
    screen.shows(*(spot(y, height=1) for y in range(10)))
    assert len(await screen.laid()) == resting._MOST


async def test_the_rows_in_view_are_cut_out_and_fill_their_cells() -> None:
    screen = Screen()
    screen.codes.clear()
    screen.shows(spot(2, above=3, height=5))
    while not screen.codes:
        await asyncio.sleep(0.001)
    found = re.search(r"width=(\d+);height=(\d+);preserveAspectRatio=0:(.*)\x07", screen.codes[0])
    assert found is not None
    with Image.open(BytesIO(b64decode(found[3]))) as image:
        assert (found[1], found[2], image.size) == ("32", "5", (320, 100))
    sixel = resting._codes("sixel", spot(2, above=3, height=5), (10, 20))
    assert re.match(r'\x1bP[\d;]*q"1;1;320;100#', sixel)


async def test_one_that_cannot_be_read_stays_half_blocks() -> None:
    screen = Screen()
    screen.shows(spot(5, replace(PICTURE, digest="lost", small=b"", load=lambda: None)))
    assert await screen.laid() == []


def test_large_cells_have_smaller_pictures_as_sixel_alone() -> None:
    for protocol, columns in (("sixel", 20), ("iterm2", 80)):
        screen = Screen(protocol, (40, 80))  # type: ignore[arg-type]
        screen.pictures.answered(TerminalAnswer("c", (62, 4)))
        rows = drawing(PICTURE, 80, unfolded=True, graphics=screen.pictures).rows
        assert (rows[0].cell_length, len(rows)) == (columns, columns // 4)
    assert LARGEST == 20 * 40


# What the terminal answers


def feed(screen: Screen, *pieces: str) -> list[str]:
    """The keys among what a terminal sends in pieces; answers reach the pictures."""
    parser, typed = KeyParser(), []
    for piece in pieces:
        for message in parser.feed(piece):
            if isinstance(message, TerminalAnswer):
                screen.pictures.answered(message)
            else:
                typed.append(message.key)  # type: ignore[attr-defined]
    return typed


@pytest.mark.parametrize(
    "pieces",
    [
        ("\x1b[?62;4;22c",), ("ab\x1b[?62;4;22ccd",), ("ab\x1b", "[?6", "2;4;22ccd"), ("ab\x1b[?62;4;22", "ccd"),
        ("\x1b[?65;1;2;4;6;9;15;16;17;18;21;22;28;29;42;52c",), ("\x1b[?63;4c\x1b[?1;0;256S",),
    ],
)  # fmt: skip
def test_an_answer_types_nothing_and_shows_pictures(pieces: tuple[str, ...]) -> None:
    screen, drawn_again = Screen("sixel"), list[int]()
    screen.pictures.changed = lambda: drawn_again.append(1)
    assert feed(screen, *pieces) == [one for one in "abcd" if "ab" in "".join(pieces)]
    assert (drawn_again, screen.codes[-1]) == ([1], "\x1b[?1;3;256S")


@pytest.mark.parametrize("sent", ["", "\x1b[?4;6c", "\x1b[?62;22c", "\x1b[?6c", "\x1b[?c", "\x1b[6;20;10t"])
def test_terminals_without_sixel_are_sent_nothing_more(sent: str) -> None:
    screen = Screen("sixel")
    assert (feed(screen, sent), screen.codes) == ([], ["\x1b[16t\x1b[c"])
    screen.shows(spot(5))
    assert (screen.pictures._timer, screen.spots) == (None, [spot(5)])
    assert screen.pictures.draw(PICTURE, Image.new("RGB", (160, 80)), 80, unfolded=False) is None


def test_cells_are_those_of_the_kernel_else_of_the_terminal() -> None:
    for cell, sent, expected in (
        ((10, 20), "\x1b[6;18;9t", (10, 20)), (None, "\x1b[6;18;9t", (9, 18)),
        (None, "\x1b[6;0;0t", None), (None, "", None),
    ):  # fmt: skip
        screen = Screen("iterm2", cell)
        assert feed(screen, sent) == []
        assert screen.pictures._cell == expected
        screen.codes.clear()
        screen.pictures.sized(Resize(SCREEN.size, SCREEN.size))
        assert screen.codes == ([] if cell else ["\x1b[16t"])
        feed(screen, "\x1b[6;40;20t")
        assert screen.pictures._cell == (cell or (20, 40))


@pytest.mark.parametrize(
    ("environment", "colours", "protocol"),
    [
        ({"TERM": "xterm"}, "256", "sixel"),
        ({"TERM_PROGRAM": "iTerm.app"}, "truecolor", "iterm2"),
        ({"TERM_PROGRAM": "WezTerm"}, "truecolor", "iterm2"),
        ({"LC_TERMINAL": "iTerm2"}, "256", "iterm2"),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, "truecolor", None),
        ({"STY": "1.tty"}, "truecolor", None),
        ({"TERM": "tmux-256color", "LC_TERMINAL": "iTerm2"}, "truecolor", None),
        ({"ZELLIJ": "0"}, "truecolor", None),
        ({"NO_COLOR": ""}, "truecolor", None),
        ({"TERM": "vt100"}, None, None),
    ],
)
def test_terminals_have_their_protocols(environment: dict[str, str], colours: str | None, protocol: str | None) -> None:
    assert protocol_of(environment, colours) == protocol
