"""Text that wants to be more than text: control codes, markup, and characters of odd widths."""

import random
import re

from rich.cells import cell_len

from specchat.tui.app import SpecchatApp

EVIL = (
    "\x1b]52;c;cm0gLXJm\x07\x9b31m\x1b[2J\u202eabc\u2066 [red]x[/red] [/] [/usr/bin] [@click=app.quit]quit[/] [[ \r\x08"
)
HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07", "\x9b31m", "\x1b[2J", "\x1bP1;2q\x1b\\", "\u202eabc\u2066", "\r\x08\x7f", "\x00\x0e",
    "\u2028x\u2029", "[red]x[/red] ", "[/] ", "[/usr/bin] ", "[@click=app.quit]quit[/] ", "[[ ", "\\[bold] ",
    "[link='http://x']y[/link] ", "$primary ", "漢字漢字", "한국어 ", "👨\u200d👩\u200d👧", "🇩🇪🏳️\u200d🌈 ", "☺️ ",
    "e\u0301\u0301\u0301 ", "Z\u0337\u0327a\u0338l\u0335g ", "\u0301", "עברית ", "العربية ", "ﷺ ", "हिन्दी ",
    "\u200b\u200d\ufeff\u00ad", "\ufe0f", "\U000e0041", "\ud800", "\u3000", "\u00a0",
)  # fmt: skip
DANGEROUS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ud800-\udfff]")
"""What must never reach the terminal."""


def anything(chance: random.Random, longest: int = 12) -> str:
    """Hostile pieces between plain words."""
    return "".join(chance.choice((chance.choice(HOSTILE), "a lamp ")) for _ in range(chance.randint(1, longest)))


def output(app: SpecchatApp) -> str:
    """What the compositor hands to the terminal, and what a screenshot holds."""
    strips = app.screen._compositor.render_strips()
    assert not any(segment.control for strip in strips for segment in strip)
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def check(app: SpecchatApp) -> str:
    """The screen's text, with no control code in it and, where nothing lies over the chat, rows as wide as it is."""
    shown = output(app)
    found = DANGEROUS.search(shown)
    assert found is None, f"{found!r} in {shown!r}"
    if len(app.screen_stack) == 1 and not app._notifications:
        for row in shown.split("\n"):
            assert cell_len(row) == app.size.width, f"{cell_len(row)} cells in {app.size.width}: {row!r}"
    return shown
