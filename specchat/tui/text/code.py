"""Code blocks: highlighted, in a box that names the language."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from time import perf_counter
from typing import Protocol

from rich.cells import cell_len
from textual.content import Content, Span
from textual.style import Style

from specchat.clean import clean
from specchat.tui.text.code_wrap import wrapped
from specchat.tui.text.lines import Code, TextLine, styled

_HIGHLIGHT_LIMIT = 60_000
"""Characters above which code is shown plain: highlighting takes about a second per million."""

SLICE_S = 0.008
"""Seconds that highlighting may take at a time while a reply is written."""

_CLASSES = {
    "Comment": ".code-comment",
    "Keyword": ".code-keyword",
    "Operator.Word": ".code-keyword",
    "Literal.String": ".code-string",
    "Literal.Number": ".code-number",
    "Name.Function": ".code-name",
    "Name.Class": ".code-name",
    "Name.Tag": ".code-name",
    "Name.Decorator": ".code-name",
    "Name.Builtin": ".code-builtin",
    "Generic.Deleted": ".code-removed",
    "Generic.Inserted": ".code-string",
    "Generic.Heading": ".code-name",
}

_DIAGRAMS = ("mermaid", "plantuml", "dot", "graphviz", "d2")


class _Lexer(Protocol):
    def get_tokens(self, text: str) -> Iterable[tuple[object, str]]: ...


class Highlighting:
    """Finds the spans of `code`'s tokens, as many at a time as there is time for.

    There are none where the language is unknown or the code very long.
    """

    def __init__(self, code: str, language: str) -> None:
        self._code = code
        self._tokens = _tokens(code, language)
        self._spans: list[Span] = []
        self._position = 0

    def run(self, seconds: float = math.inf) -> bool:
        """Go on for that long; whether all is done."""
        until = perf_counter() + seconds
        for token, text in self._tokens:
            end = min(self._position + len(text), len(self._code))
            if style := _style(token):
                self._spans.append(Span(self._position, end, style))
            self._position = end
            if perf_counter() >= until:
                return False
        return True

    @property
    def content(self) -> Content:
        return Content(self._code, self._spans)


def _tokens(code: str, language: str) -> Iterator[tuple[object, str]]:
    lexer = _lexer(language) if language and len(code) <= _HIGHLIGHT_LIMIT else None
    if lexer is None:
        return iter(())
    return iter(lexer.get_tokens(code + "\n"))  # some look for the end of the last line too


@lru_cache(64)  # finding one by its name is half the work of highlighting a few lines
def _lexer(language: str) -> _Lexer | None:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer: _Lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


def highlight(code: str, language: str) -> Content:
    """`code` with spans for its tokens."""
    job = Highlighting(code, language)
    job.run()
    return job.content


@cache
def _style(token: object) -> str:
    """The class of a kind of token, or of the nearest kind above it; empty for plain text."""
    name = str(token)[6:]
    while name and name not in _CLASSES:
        name = name.rpartition(".")[0]
    return _CLASSES.get(name, "")


def language_of(info: str) -> str:
    """The language named by a fence's info string (```` ```python title=x ````), lower case; empty when none."""
    words = clean(info).split()
    return words[0].strip("{}.").lower() if words else ""


def _top(code: Code, width: int) -> TextLine:
    inner, language = max(width - 4, 4), code.language
    language += ", source of a diagram" if language in _DIAGRAMS else ""
    title = f" {Content(language).truncate(inner - 8).plain} " if language and inner > 16 else ""
    button = " copy " if inner > 12 else ""
    rule = "─" * max(width - 4 - cell_len(title) - len(button), 0)
    top = Content.assemble(
        ("╭─", ".box"),
        (title, ".box-title"),
        (rule, ".box"),
        (button, Style.from_meta({"copy": code.text})),
        ("─╮", ".box"),
    ).stylize(".box-button", 2 + len(title) + len(rule), 2 + len(title) + len(rule) + len(button))
    return TextLine(top, copied=False, code=code)


def _bottom(code: Code, width: int) -> TextLine:
    return TextLine(styled("╰" + "─" * (width - 2) + "╯", ".box"), copied=False, code=code)


def _sides(code: Content, width: int, whole: Code) -> list[TextLine]:
    """The rows between top and bottom."""
    inner = max(width - 4, 4)
    left, right = styled("│ ", ".box"), styled(" │", ".box")
    lines = []
    for hard in code.split("\n", allow_blank=True):
        rows = wrapped(hard, inner)
        for index, (indent, row, glue) in enumerate(rows):
            start = len(left) + len(indent)
            content = left + indent + row.pad_right(inner - indent.cell_length - row.cell_length) + right
            lines.append(TextLine(content, start, start + len(row), index < len(rows) - 1, glue=glue, code=whole))
    return lines


def box(code: Content, language: str, width: int) -> list[TextLine]:
    """Rows of a code box `width` cells wide; `copy` in its top edge carries the code in its style's meta."""
    whole = Code(code.plain, language)
    return [_top(whole, width), *_sides(code, width, whole), _bottom(whole, width)]


class OpenCode:
    """The fence being written. Its lines are laid out once as plain text, and again when they are highlighted.

    Highlighting costs n log n in all, and no more than `SLICE_S` at a time.
    """

    def __init__(self) -> None:
        self._next = 1
        self._taken = 0
        self._width = 0
        self._code = Code("", "")
        self._rows: list[TextLine] = []
        self._job: Highlighting | None = None
        self._job_rows = 0

    def lines(self, body: str, language: str, width: int) -> list[TextLine]:
        """`body` so far, its latest lines perhaps still plain."""
        if (width, language) != (self._width, self._code.language) or len(body) < self._taken:
            self._width, self._taken, self._next, self._rows, self._job = width, 0, 1, [], None
            self._code = Code(body, language)
        code = self._code
        code.text = body
        end = body.rfind("\n", self._taken)
        if end >= 0:
            self._rows += _sides(Content(body[self._taken : end]), width, code)
            self._taken = end + 1
            count = body.count("\n", 0, end) + 1
            if self._job is None and count >= self._next:
                self._job, self._job_rows = Highlighting(body[:end], language), len(self._rows)
                self._next = count + 1 + count // 4
        if self._job is not None and self._job.run(SLICE_S):
            self._rows[: self._job_rows] = _sides(self._job.content, width, code)
            self._job = None
        open_line = _sides(Content(body[self._taken :]), width, code)
        return [_top(code, width), *self._rows, *open_line, _bottom(code, width)]


def code_lines(body: str, language: str, width: int) -> Sequence[TextLine]:
    """A finished code block."""
    return box(highlight(body, language), language, width)
