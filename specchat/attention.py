"""A word to someone who looks elsewhere, as their terminal can say it."""

import os
from collections.abc import Mapping
from typing import Literal

from specchat.clean import one_line

Notify = Literal["auto", "bell", "off"]
BELL = "\a"
WIDTH = 80
"""Characters of a notice."""
_OSC_9 = ("iTerm.app", "WezTerm", "ghostty")
"""Programs, as TERM_PROGRAM names them, that show the text of OSC 9."""


def codes(text: str, how: Notify, environment: Mapping[str, str] = os.environ) -> str:
    """Return the control codes that show `text` outside of the terminal's window, or ring; empty if it is "off".

    Sources: iTerm2's proprietary escape codes (OSC 9), kitty's desktop notifications (OSC 99), urxvt's and foot's
    `notify` (OSC 777). Within tmux, which lets none of them through, the bell marks the window.
    """
    if how == "off":
        return ""
    words = one_line(text, WIDTH)
    if how == "bell" or environment.get("TMUX") or environment.get("STY"):
        return BELL
    if environment.get("KITTY_WINDOW_ID"):
        return f"\x1b]99;;{words}\x1b\\"
    if environment.get("TERM_PROGRAM") in _OSC_9:
        return f"\x1b]9;{words}\a"
    if environment.get("TERM", "").startswith(("foot", "rxvt-unicode")) or environment.get("VTE_VERSION"):
        return f"\x1b]777;notify;specchat;{words.replace(';', ',')}\x1b\\" + BELL
    return BELL
