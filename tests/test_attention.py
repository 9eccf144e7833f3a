"""Codes that have a terminal tell something to someone who looks elsewhere."""

import pytest

from specchat.attention import BELL, Notify, codes


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, BELL),
        ({"TERM": "xterm-256color"}, BELL),
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;done; at last\a"),
        ({"TERM_PROGRAM": "ghostty", "TERM": "xterm-ghostty"}, "\x1b]9;done; at last\a"),
        ({"KITTY_WINDOW_ID": "1"}, "\x1b]99;;done; at last\x1b\\"),
        ({"TERM": "foot"}, "\x1b]777;notify;specchat;done, at last\x1b\\\a"),
        ({"VTE_VERSION": "7600"}, "\x1b]777;notify;specchat;done, at last\x1b\\\a"),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, BELL),
    ],
)
def test_each_terminal_is_told_as_it_can_say_it(environment: dict[str, str], expected: str) -> None:
    assert codes("done; at last", "auto", environment) == expected


@pytest.mark.parametrize(("how", "expected"), [("bell", BELL), ("off", "")])
def test_one_may_choose(how: Notify, expected: str) -> None:
    assert codes("done", how, {"KITTY_WINDOW_ID": "1"}) == expected


def test_no_text_of_a_chat_is_a_code() -> None:
    found = codes("a\x1b]0;title\a\x9c\nb" * 99, "auto", {"KITTY_WINDOW_ID": "1"})
    inside = found.removeprefix("\x1b]99;;").removesuffix("\x1b\\")
    assert inside.isprintable()
    assert len(inside) < 200
