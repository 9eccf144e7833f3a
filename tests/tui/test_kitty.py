"""Pictures by kitty's protocol: what is sent, the cells that show it, and terminals that are sent nothing."""

import asyncio
import fcntl
import gc
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from unicodedata import combining, decomposition

import pytest
from PIL import Image
from textual.events import Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize

from specchat.attachments.files import Attachment
from specchat.attachments.pictures import attached
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.tui import kitty
from specchat.tui.kitty import KittyGraphics, can_show
from specchat.tui.text.pictures import COLUMNS, Drawing, drawing
from tests.chat.conftest import answer
from tests.drawn import drawn

PICTURE = attached(drawn("PNG", (1600, 400)))
OTHER = attached(drawn("JPEG", (300, 300)))
PLACEHOLDER = "\U0010eeee"
SENT = re.compile(r"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\")
PROGRAM = Path(__file__).with_name("logged_app.py")


class Screen:
    """The terminal's side of a `KittyGraphics`."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.drawn_again = 0
        self.waiting: list[Callable[[], None]] = []
        self.graphics = KittyGraphics(self.codes.append, self.waiting.append)
        self.graphics.changed = self._changed

    def _changed(self) -> None:
        self.drawn_again += 1

    def found(self, cell: tuple[int, int] = (10, 20)) -> None:
        """Enter the terminal, whose cells have so many pixels."""
        self.graphics.answered(InBandWindowResize(supported=True, enabled=True))
        self.sized(cell)

    def sized(self, cell: tuple[int, int]) -> None:
        size = Size(100, 40)
        self.graphics.sized(Resize(size, size, size, Size(100 * cell[0], 40 * cell[1])))

    def sent(self) -> list[dict[str, str]]:
        """The keys of the commands since the last call, chunks put together, the data under ""."""
        found: list[dict[str, str]] = []
        for keys, data in SENT.findall("".join(self.codes)):
            given = dict(key.split("=") for key in keys.split(","))
            assert given["q"] == "2"  # the terminal is silent
            if found and found[-1].get("m") == "1":
                found[-1] |= {"m": given["m"], "": found[-1][""] + data}
            else:
                found.append({**given, "": data})
        rest = SENT.sub("", "".join(self.codes))
        assert rest == ""
        self.codes.clear()
        return found

    def draw(self, width: int = 100, unfolded: bool = False, picture: object = PICTURE) -> Drawing:
        return drawing(picture, width, unfolded=unfolded, graphics=self.graphics)  # type: ignore[arg-type]


def test_numbers_are_kittys() -> None:
    """By the rule at the head of its list; Unicode 6 had all of them up to U+06E2."""
    fused = {*range(0x300, 0x305), *range(0x306, 0x30D), 0x30F, 0x311, 0x313, 0x314, 0x342, 0x653, 0x654}
    every = (chr(code) for code in range(0x300, 0x6E3) if code not in fused)
    assert [*kitty._NUMBERS] == [one for one in every if combining(one) == 230 and not decomposition(one)]
    assert len(kitty._NUMBERS) == COLUMNS


@pytest.mark.parametrize("cell", [(10, 20), (8, 20)])
def test_it_is_sent_once_and_shown_by_cells(cell: tuple[int, int]) -> None:
    screen = Screen()
    screen.found(cell)
    shown = screen.draw()
    assert screen.draw() is shown
    (one,) = screen.sent()
    columns = {(10, 20): 64, (8, 20): 80}[cell]
    assert {key: one[key] for key in "aUfcr"} == {"a": "T", "U": "1", "f": "100", "c": str(columns), "r": "8"}
    with Image.open(BytesIO(b64decode(one[""]))) as image:
        assert (image.format, image.size) == ("PNG", (160, 40))
    number = int(one["i"])
    for row, content in enumerate(shown.rows):
        assert content.plain == "".join(PLACEHOLDER + kitty._NUMBERS[row] + kitty._NUMBERS[x] for x in range(columns))
        assert content.cell_length == columns
        assert {str(span.style) for span in content.spans} == {
            f"rgb({number >> 16},{number >> 8 & 255},{number & 255})"
        }


def test_it_goes_with_its_last_cells() -> None:
    screen = Screen()
    screen.found()
    shown, other = screen.draw(), screen.draw(picture=OTHER)
    first, second = (one["i"] for one in screen.sent())
    narrow = screen.draw(width=20)
    (third,) = (one["i"] for one in screen.sent())
    del shown
    gc.collect()
    screen.waiting.pop()()
    assert [(one["a"], one["d"], one["i"]) for one in screen.sent()] == [("d", "I", first)]
    screen.graphics.close()
    assert {one["i"] for one in screen.sent()} == {second, third}
    assert [len(one.rows) for one in (narrow, other)] == [2, 8]
    assert PLACEHOLDER not in screen.draw().rows[0].plain


async def test_the_whole_picture_follows_where_it_is_unfolded() -> None:
    screen = Screen()
    screen.found()
    small = screen.draw(unfolded=True)
    screen.drawn_again = 0
    assert screen.draw(unfolded=True) is small
    while not screen.drawn_again:
        await asyncio.sleep(0.001)
    whole = screen.draw(unfolded=True)
    assert whole is not small
    sizes = []
    for one in screen.sent():
        with Image.open(BytesIO(b64decode(one[""]))) as image:
            sizes.append(image.size)
    assert sizes == [(160, 40), (800, 200)]
    assert screen.draw(unfolded=True) is whole
    lost = replace(OTHER, load=lambda: None)
    assert screen.draw(unfolded=True, picture=lost).rows[0].plain[0] == PLACEHOLDER


def test_the_terminal_holds_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kitty, "MOST_PIXELS", 160 * 40 + 160 * 160 - 1)
    screen = Screen()
    screen.found()
    shown = screen.draw()
    assert "▀" in screen.draw(picture=OTHER).rows[0].plain
    del shown
    gc.collect()
    screen.waiting.pop()()
    assert PLACEHOLDER in screen.draw(picture=OTHER).rows[0].plain


def test_all_is_sent_again_to_a_terminal_that_was_left_meanwhile() -> None:
    screen = Screen()
    assert "▀" in screen.draw().rows[0].plain
    screen.sized((10, 20))
    assert (screen.drawn_again, "▀" in screen.draw().rows[0].plain, screen.sent()) == (0, True, [])
    screen.found()
    shown = screen.draw()
    assert screen.drawn_again == 1
    screen.sized((10, 20))
    assert (screen.drawn_again, screen.draw()) == (1, shown)
    (first,) = screen.sent()
    screen.found()
    assert screen.draw() is not shown
    deleted, second = screen.sent()
    assert (deleted["a"], deleted["i"], second["i"] != first["i"], screen.drawn_again) == ("d", first["i"], True, 2)
    screen.sized((10, 24))
    assert (screen.drawn_again, len(screen.draw().rows)) == (3, 8)


KITTY = {"TERM": "xterm-kitty"}


@pytest.mark.parametrize(
    ("environment", "colours", "can"),
    [
        (KITTY, "truecolor", True),
        ({"TERM": "xterm-ghostty"}, "truecolor", True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "truecolor", True),
        (KITTY, "256", False),
        (KITTY, None, False),
        (KITTY | {"TMUX": "/tmp/tmux-0/default,1,0"}, "truecolor", False),
        (KITTY | {"STY": "1.tty"}, "truecolor", False),
        (KITTY | {"ZELLIJ": "0"}, "truecolor", False),
        (KITTY | {"NO_COLOR": "1"}, "truecolor", False),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, "truecolor", False),
        ({"TERM": "xterm-256color", "KONSOLE_VERSION": "240800"}, "truecolor", False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "truecolor", False),
    ],
)
def test_terminals_are_known_by_their_names(environment: dict[str, str], colours: str | None, can: bool) -> None:
    assert can_show(environment, colours) is can


def output_of(folder: Path, environment: dict[str, str], *, answers: bool) -> str:
    """All that an app writes to a terminal in which it opens a chat with a picture, and is left."""
    store, chat = Store(folder / "chats.db"), Conversation()
    turn = chat.ask("what is this", (Attachment("a.png", picture=PICTURE),))
    store.add_turn(chat, turn, {})
    store.save_reply(chat, answer(chat, turn, "A gradient."))
    store.save_chat(chat, {})
    store.close()
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 600, 1000))
    given = {name: value for name, value in os.environ.items() if name not in ("TMUX", "STY", "ZELLIJ", "NO_COLOR")}
    given |= {"COLORTERM": "truecolor", "LINES": "30", "COLUMNS": "100", **environment}
    paths = os.pathsep.join(filter(None, (str(PROGRAM.parents[2]), given.get("PYTHONPATH"))))
    log = os.open(os.devnull, os.O_WRONLY)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder / "chats.db"), str(log), chat.key],
        stdin=follower, stdout=follower, stderr=follower, env=given | {"PYTHONPATH": paths}, pass_fds=[log],
    )  # fmt: skip
    replies = {b"\x1b[?2048$p": b"\x1b[?2048;2$y", b"\x1b[?2048h": b"\x1b[48;30;100;600;1000t"} if answers else {}
    output, left, end = b"", False, time.monotonic() + 60
    try:
        while process.poll() is None:
            assert time.monotonic() < end, output
            if select.select([leader], [], [], 0.1)[0]:
                output += os.read(leader, 1 << 16)
            for asked in [one for one in replies if one in output]:
                os.write(leader, replies.pop(asked))
            shown = (
                PLACEHOLDER.encode() in output if answers and not environment.get("TMUX") else "▀".encode() in output
            )
            if shown and b"gradient" in output and not left:
                left = os.write(leader, b"\x11") > 0
        while select.select([leader], [], [], 0)[0]:
            output += os.read(leader, 1 << 16)
    finally:
        process.kill()
        process.wait()
        for descriptor in (leader, follower, log):
            os.close(descriptor)
    return output.decode()


def test_a_terminal_that_reports_sizes_shows_pictures(tmp_path: Path) -> None:
    output = output_of(tmp_path, KITTY, answers=True)
    commands = [dict(key.split("=") for key in keys.split(",")) for keys, _ in SENT.findall(output)]
    sent = [one["i"] for one in commands if one.get("a") == "T"]
    assert sent == [one["i"] for one in commands if one.get("a") == "d"]
    number = int(sent[0])
    colour = f"\x1b[38;2;{number >> 16};{number >> 8 & 255};{number & 255}"
    first = output.index(PLACEHOLDER)
    assert output.index(f"i={number}") < output.index(colour) < first
    assert output.index("a=d,d=I") < output.index("\x1b[?1049l")
    for row in range(8):
        assert PLACEHOLDER + kitty._NUMBERS[row] + kitty._NUMBERS[0] in output


@pytest.mark.parametrize(
    ("environment", "answers"), [(KITTY, False), (KITTY | {"TMUX": "/tmp/tmux-0/default,1,0"}, True)]
)
def test_others_show_half_blocks_and_are_sent_nothing(
    environment: dict[str, str], answers: bool, tmp_path: Path
) -> None:
    output = output_of(tmp_path, environment, answers=answers)
    assert (PLACEHOLDER in output, "\x1b_G" in output, "▀" in output) == (False, False, True)
