"""Pastes with escape codes in them, and an app without colours, on a real terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.message import Message

from specchat.tui import terminal
from specchat.tui.escapes import END, START, EscapeFilter
from specchat.tui.pastes import LARGEST

PROGRAM = Path(__file__).with_name("logged_app.py")
COLOUR = re.compile(rb"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)(?:[;:]\d+)*m")
SHADOWED = "alpha \x1b[31mred\x1b[0m omega"


def read(pieces: list[str]) -> list[events.Event]:
    """What Textual makes of pieces that come from a terminal."""
    escapes, parser = EscapeFilter(), XTermParser()
    texts = [text for piece in pieces if (text := escapes.feed(piece))]
    return [event for text in texts for event in parser.feed(text) if isinstance(event, events.Event)]


def pasted(*pieces: str) -> str:
    (event,) = read(list(pieces))
    assert isinstance(event, events.Paste)
    return event.text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SHADOWED, "alpha red omega"),
        ("\x1b[1;38;5;12mbold\x1b(B\x1b[m", "bold"),
        ("\x1b]8;;https://x.y\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07here", "link here"),
        ("one\x1b[Atwo\x1b[3~three\x1b[<0;1;1M", "onetwothree"),
        ("lone \x1b escape, cut \x1b[12", "lone  escape, cut [12"),
        ("\x1b[I focus \x1b[O", " focus "),
        ("plain\ntext\té", "plain\ntext\té"),
    ],
)
def test_a_paste_is_one_text_in_its_order(given: str, expected: str) -> None:
    assert pasted(START + given + END) == expected
    assert pasted(*(START + given + END)) == expected


@given(st.lists(st.sampled_from(["a", "é", "\n", "\x1b", "\x1b[31m", "\x1b]0;t", "\x07", "[", "3", "m"])), st.data())
def test_pieces_make_no_difference(parts: list[str], data: st.DataObject) -> None:
    text = f"x{''.join(parts)}y"
    whole = f"ab{START}{text}{END}cd\x1b[A"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    escapes = EscapeFilter()
    assert "".join(map(escapes.feed, pieces)) == EscapeFilter().feed(whole)


@given(st.text(alphabet="a\x1b[]0;mA~20O", max_size=30).filter(lambda text: START not in text), st.integers(0, 30))
def test_what_is_typed_is_passed_on_as_it_comes(text: str, cut: int) -> None:
    escapes = EscapeFilter()
    assert [escapes.feed(text[:cut]), escapes.feed(text[cut:])] == [text[:cut], text[cut:]]


def read_until(leader: int, words: bytes) -> bytes:
    """What is drawn until `words` are in it, letters that stand in one row with no code between them."""
    output, end = b"", time.monotonic() + 60
    while words not in output:
        assert time.monotonic() < end, output
        if select.select([leader], [], [], 0.1)[0]:
            output += os.read(leader, 1 << 16)
    return output


def test_on_a_terminal_without_colours(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    command = [sys.executable, str(PROGRAM), str(tmp_path / "chats.db"), str(log := os.open(os.devnull, os.O_WRONLY))]
    size = {"TERM": "xterm-256color", "LINES": "30", "COLUMNS": "120", "PYTHONPATH": str(PROGRAM.parents[2])}
    environment = os.environ | size | {"COLORTERM": "truecolor", "NO_COLOR": "1"}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, pass_fds=[log]
    )
    try:
        drawn = read_until(leader, b"new chat")
        os.write(leader, f"{START}{SHADOWED}{END}".encode())
        drawn += read_until(leader, b"alpha red omega")
        os.write(leader, b"\x1b[12~")  # F2: the settings
        drawn += read_until(leader, b"system")
        assert not COLOUR.search(drawn)
        assert b"\x1b[7;" in drawn  # the cursor
    finally:
        process.kill()
        process.wait()
        for descriptor in (leader, follower, log):
            os.close(descriptor)


def test_of_a_paste_without_bound_only_as_much_is_read_as_is_told() -> None:
    escapes, piece = EscapeFilter(), "ab\x1b[31mc" * 500
    passed = [escapes.feed(START), *(escapes.feed(piece) for _ in range(12_000)), escapes.feed(f"{piece}{END}x")]
    text = "".join(passed)
    assert text.startswith(f"{START}abcabc")
    assert text.endswith(f"{END}x")
    assert len(text) == len(START) + LARGEST + 1 + len(f"{END}x")
    assert escapes.feed(START + "d" + END) == START + "d" + END  # the next one has room again


def test_an_escape_that_has_waited_is_no_alt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the thread that reads got no processor in the meantime: its clock looks after the next key came."""
    coming, seen, now = [b"a", b"\x1b", b"l", b""], list[str](), 0.0

    def select(_: float) -> bool:
        nonlocal now
        now += 2 * constants.ESCAPE_DELAY
        return True

    def take(message: Message) -> None:
        if isinstance(message, events.Key):
            seen.append(message.key)

    selector = SimpleNamespace(register=lambda *_: None, select=select)
    monkeypatch.setattr(terminal.selectors, "SelectSelector", lambda: nullcontext(selector))
    monkeypatch.setattr("textual._parser.get_time", lambda: now)
    driver = object.__new__(terminal.Terminal)
    driver.fileno, driver.exit_event, driver._debug = 0, threading.Event(), False
    monkeypatch.setattr(driver, "_read", lambda: coming.pop(0))
    monkeypatch.setattr(driver, "process_message", take)
    monkeypatch.setattr(driver, "_end", lambda _: None)
    driver.run_input_thread()
    assert seen == ["a", "escape", "l"]
