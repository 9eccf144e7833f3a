"""Whatever a terminal sends, and however it is cut: keys are keys, answers are nothing, and the app does not end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import constants, events
from textual.message import Message

from specchat.tui.escapes import END, START, EscapeFilter
from specchat.tui.key_parser import KeyParser

ANSWERS = (
    "\x1b]11;rgb:1414/1919/1f1f\x1b\\", "\x1b]11;rgb:1414/1919/1f1f\x07", f"\x1b]52;c;{'YWJj' * 2000}\x1b\\",
    "\x1bP>|tmux 3.5a\x1b\\", "\x1bP1$r0m\x1b\\", "\x1b_Gi=31;OK\x1b\\", "\x1b^words\x1b\\", "\x1bXwords\x1b\\",
    "\x1b[?61;4;6c", "\x1b[>0;10;1c", "\x1b[?0u", "\x1b[8;30;100t", "\x1b[?997;1n", f"\x1b[{'1;' * 3000}m",
    "\x1b[97;1:3u", "\x1b[1;1:3A", "\x1b[3;1:3~", "\x1b[1114112u", "\x1b[97;;99999999999999999999u", "\x1b[<0;-5;3M",
    "\x1b[48;99999999;99999999;1;1t",
)  # fmt: skip
"""Answers, released keys and impossible ones: none is a key."""
JUNK = st.one_of(
    st.sampled_from(ANSWERS),
    st.from_regex(r"\A\x1b\[[?<>=]?([0-9]{0,9}[;:]?){0,6}[ -/]?[@-~]\Z"),
    st.text("\x1b[]PX^_O?<M;:~u\\\x07\r\x18\x00019a\x9b\ud800", max_size=12),
)


def read(*pieces: str) -> list[Message]:
    """What comes of pieces that a terminal sends without a pause."""
    escapes, parser = EscapeFilter(), KeyParser()
    texts = [text for piece in pieces if (text := escapes.feed(piece))]
    return [message for text in (*texts, "") for message in parser.feed(text)]


def keys(*pieces: str) -> list[str]:
    return [message.key for message in read(*pieces) if isinstance(message, events.Key)]


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_is_no_key_types_nothing_wherever_it_is_cut(answer: str) -> None:
    assert keys(f"a{answer}b\x1b[A") == ["a", "b", "up"]
    assert keys(*f"a{answer}b\x1b[A") == ["a", "b", "up"]
    pasted = [message for message in read(f"{answer}{START}as it is{END}{answer}") if isinstance(message, events.Paste)]
    assert [message.text for message in pasted] == ["as it is"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("\x1b[97;1:1u", ["a"]),
        ("\x1b[97:65;2u", ["shift+a"]),
        ("\x1b[97::u", ["a"]),
        ("\x1b[1;1:2A\x1b[1;5:1A", ["up", "ctrl+up"]),
        ("\x1b[0;;128104:8205:128105:8205:128103u", ["man", "zero_width_joiner", "woman", "zero_width_joiner", "girl"]),
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1bP\x1bP", ["alt+shift+p", "alt+shift+p"]),
        ("\x1b]half\rb", ["enter", "b"]),
        ("\x1b[12\x1ba", ["alt+a"]),
        ("\x1b[[A\x1bOQ\x1b[3$", ["f1", "f2", "shift+delete"]),
    ],
)
def test_keys_are_read_in_every_form(sent: str, expected: list[str]) -> None:
    assert keys(sent) == keys(*sent) == expected


@given(st.lists(JUNK, max_size=6), st.booleans())
def test_nothing_ends_it(junk: list[str], cut: bool) -> None:
    text = "".join(junk)
    assert keys(*(text if cut else (text,)), "\x1b[27u", "\r", "z")[-2:] == ["enter", "z"]


def test_a_sequence_that_does_not_go_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now, parser, seen = 0.0, KeyParser(), list[Message]()
    monkeypatch.setattr("textual._parser.get_time", lambda: now)
    for piece in ("\x1b]11;rgb:14", "14/1919", "a", "\x1b", "[", "b"):
        seen += parser.feed(piece)
        now += 3 * constants.ESCAPE_DELAY if piece != "14/1919" else 60
        seen += parser.tick()
    typed = [message.key for message in seen if isinstance(message, events.Key)]
    assert typed == ["a", "escape", "left_square_bracket", "b"]


def test_a_window_whose_pixels_are_unknown_has_a_mouse() -> None:
    _, click = read("\x1b[48;24;80;0;0t\x1b[<0;3;4M")
    assert isinstance(click, events.MouseDown)
    assert (click.x, click.y) == (2, 3)
