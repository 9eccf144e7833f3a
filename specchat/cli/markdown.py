"""Markdown on a terminal while it is written: words as they come, each block drawn properly once it ends."""

import re
import shutil
from collections.abc import Callable
from os import terminal_size

from specchat.clean import clean

WIDEST = 100
"""Columns of a line of text at most: longer ones are hard to read."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_WORD = re.compile(r"\n|[^\S\n]+|[^\s]+")


class MarkdownWriter:
    """Takes a text in pieces. `write` gets words wrapped to the terminal, and codes that draw a block over them.

    A block that has scrolled out of reach, or whose terminal changed its size, stays as its words.
    """

    def __init__(
        self, write: Callable[[str], None], size: Callable[[], terminal_size] = shutil.get_terminal_size
    ) -> None:
        self._write = write
        self._size = size
        self._before = size()
        self._word = ""
        """The last word, which may go on."""
        self._line = ""
        """The source of the last line."""
        self._block = ""
        self._fence = ""
        """Characters that close the open code block; empty outside of code."""
        self._column = self._rows = 0
        """Row of the cursor, from the block's beginning."""

    def put(self, text: str) -> None:
        """Write more of the text."""
        for part in _WORD.findall(clean(text)):
            if part == "\n":
                self._end_word()
                self._end_line()
            elif part.isspace() != (self._word.isspace() if self._word else part.isspace()):
                self._end_word()
                self._word = part
            else:
                self._word += part

    def end(self) -> None:
        """The text is over."""
        self._end_word()
        self._block += self._line
        self._line = ""
        self._end_block()

    def _end_word(self) -> None:
        from rich.cells import cell_len

        word, self._word = self._word, ""
        if not word:
            return
        if not self._block and not self._line:
            self._before = self._size()
        self._line += word
        room, width = self._width, cell_len(word)
        if self._column + width > room:
            if word.isspace():
                return
            self._row()
        rows, left = divmod(max(width - 1, 0), self._before.columns) if width > room else (0, width - 1)
        self._write(word)
        self._rows += rows
        self._column += left + 1

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        if not line.strip() and not self._fence:
            self._end_block()
            return
        self._block += f"{line}\n"
        self._row()
        fence = _FENCE.match(line)
        if self._fence:
            closes = fence and fence[1].startswith(self._fence) and not line.strip().strip(self._fence[0])
            self._fence = "" if closes else self._fence
            if closes:
                self._end_block()
        elif fence:
            self._fence = fence[1]

    def _row(self) -> None:
        self._write("\n")
        self._rows, self._column = self._rows + 1, 0

    def _end_block(self) -> None:
        """Draw the block in the place of its words."""
        block, self._block, self._fence = self._block, "", ""
        if not block.strip():
            return
        if self._rows < self._before.lines - 1 and self._size() == self._before:
            up = f"\x1b[{self._rows}A" if self._rows else ""
            self._write(f"{up}\r\x1b[J{_drawn(block, self._width)}\n")
        else:
            self._write("\n" if not self._column else "\n\n")
        self._rows = self._column = 0

    @property
    def _width(self) -> int:
        return min(self._before.columns, WIDEST)


def _drawn(block: str, width: int) -> str:
    """A block of Markdown in lines with colours, each with its line break, without empty ones around."""
    from markdown_it import MarkdownIt
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.text import Text

    from specchat.formulas.latex import in_rows
    from specchat.formulas.marks import add_math, inside, is_displayed, shown_formula

    console = Console(force_terminal=True, width=width)
    with console.capture() as captured:
        document = Markdown("", code_theme="ansi_dark", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        add_math(parser)
        document.parsed = parser.parse(block)  # as rich does, but HTML is text like any other
        for children in (token.children or [] for token in document.parsed):
            for token in children:
                if token.type == "math":
                    alone = len(children) == 1 and is_displayed(token.content)
                    rows = in_rows(inside(token.content), width) if alone else None
                    token.type, token.content = "text", "\n".join(rows or [shown_formula(token.content)])
        console.print(document)
    lines = captured.get().splitlines()
    filled = [number for number, line in enumerate(lines) if Text.from_ansi(line).plain.strip()]
    return "".join(f"{line}\n" for line in lines[filled[0] : filled[-1] + 1]) if filled else ""
