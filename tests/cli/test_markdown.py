"""Markdown on a terminal: what stands there at the end, and that words come at once."""

import re
from os import terminal_size

import pytest
from rich.cells import cell_len

from specchat.cli.markdown import MarkdownWriter

TEXT = """# A title

Once there was a **fox** who kept a `lamp` and walked over the long hills of the north, 狐狸 too. See [here](http://x.y/z).

1. one
2. two, with a line that is longer than the terminal is wide and so goes on in a second row
   - nested

~~~python
def f(x):

    return x  # ``` is no fence here
~~~

| a | b |
|---|---|
| 1 | 2 |

The end"""
CODE = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[[\d;]*m")


class Screen:
    """As much of a terminal as is written to: lines, the cursor, wrapping at the right edge."""

    def __init__(self, columns: int = 60, lines: int = 40) -> None:
        self.size = terminal_size((columns, lines))
        self.rows = ["earlier", ""]
        self.at = 1
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)
        while text:
            if found := re.match(r"\x1b\[[\d;]*m", text):
                text = text[found.end() :]
            elif found := re.match(r"\x1b\[(\d+)A", text):
                self.at -= int(found[1])
                text = text[found.end() :]
            elif text.startswith("\r\x1b[J"):
                self.rows[self.at :] = [""]
                text = text[4:]
            elif text[0] == "\n":
                self._down()
                text = text[1:]
            else:
                assert text[0] >= " ", repr(text[:10])
                if cell_len(self.rows[self.at] + text[0]) > self.size.columns:
                    self._down()
                self.rows[self.at] += text[0]
                text = text[1:]

    def _down(self) -> None:
        self.at += 1
        if self.at == len(self.rows):
            self.rows.append("")

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows)


def shown(text: str, screen: Screen, by: int = 1) -> str:
    writer = MarkdownWriter(screen.write, lambda: screen.size)
    for start in range(0, len(text), by):
        writer.put(text[start : start + by])
    writer.end()
    return screen.text


@pytest.mark.parametrize("columns", [24, 60, 100, 140])
def test_blocks_are_drawn_over_their_words_however_the_pieces_fall(columns: int) -> None:
    found = {shown(TEXT, Screen(columns), by) for by in (1, 2, 7, len(TEXT))}
    (screen,) = found
    assert screen.startswith("earlier\n")
    assert "**" not in screen
    assert "~~~" not in screen
    assert "|---" not in screen
    assert "1 one" in screen
    assert "• nested" in screen
    assert "return x  # ``` is no fence here" in re.sub(r"\s*\n\s*", " ", screen) or columns > 24
    assert screen.rstrip().endswith("The end")
    assert all(cell_len(row) <= min(columns, 100) for row in screen.splitlines())
    assert "\n\n\n" not in screen.replace("def f(x):\n\n", "")


def test_words_come_before_their_block_ends() -> None:
    screen = Screen()
    writer = MarkdownWriter(screen.write, lambda: screen.size)
    writer.put("Once there was a **fo")
    assert screen.text == "earlier\nOnce there was a"
    writer.put("x** ")
    assert screen.text == "earlier\nOnce there was a **fox**"
    writer.put("\n\n")
    assert screen.text == "earlier\nOnce there was a fox\n\n"


def test_no_word_is_broken_that_fits() -> None:
    words = [f"word{number}" for number in range(40)]
    screen = Screen(31, 200)
    writer = MarkdownWriter(screen.write, lambda: screen.size)
    writer.put(" ".join(words) + " ")
    assert screen.text.split()[1:] == words
    assert all(cell_len(row) <= 31 for row in screen.rows)


@pytest.mark.parametrize("long", ["x" * 100, "狐" * 50])
def test_a_word_longer_than_a_row_is_drawn_over_as_well(long: str) -> None:
    screen = shown(f"so {long} it\n\nend", Screen(30))
    assert re.sub(r"\s", "", screen) == f"earlierso{long}itend"


def test_a_block_that_scrolled_away_stays_as_it_was_written() -> None:
    text = "\n".join(f"- **item {number}**" for number in range(20))
    assert "- **item 3**" in shown(f"{text}\n\nend", Screen(60, 10))
    assert "• item 3" in shown(f"{text}\n\nend", Screen(60, 40))


def test_nothing_is_drawn_over_after_the_terminal_changed_its_size() -> None:
    screen = Screen()
    writer = MarkdownWriter(screen.write, lambda: screen.size)
    writer.put("a **fox** and more ")
    screen.size = terminal_size((20, 40))
    writer.put("of it\n\n")
    writer.put("**then**\n\n")
    assert screen.text == "earlier\na **fox** and more o\nf it\n\nthen\n\n"


def test_codes_in_the_text_are_shown_and_links_are_text() -> None:
    screen = Screen()
    shown("a \x1b[31mred\x07 [here](file:///etc/passwd) <b>\n\n[x](javascript:1)", screen)
    assert "\x1b]" not in "".join(screen.written)
    assert "\x07" not in "".join(screen.written)
    assert "a ␛[31mred" in screen.text
    assert "[here](file:///etc/passwd) <b>" in screen.text
    assert "see (http://x.y)" in shown("[see](http://x.y)", Screen())
    assert shown("<div>\nhello\n</div>\n", Screen()) == "earlier\n<div> hello </div>\n\n"


def test_formulas_are_drawn_as_in_the_app() -> None:
    text = "So $x^2 \\le \\alpha$ for $5 and $6.\n\n$$\n\\frac{a + b}{c}\n$$\n\nAnd $\\nosuch{x}$."
    rows = [row.rstrip() for row in shown(text, Screen()).splitlines() if row.strip()]
    assert rows[1:] == ["So x² ≤ α for $5 and $6.", " a + b", "───────", "   c", "And $\\nosuch{x}$."]
