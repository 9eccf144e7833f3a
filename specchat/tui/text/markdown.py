"""One closed Markdown block to rows of styled text. HTML stays text, links show where they lead."""

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from textual.content import Content, Span
from textual.style import Style

from specchat.clean import clean, is_web_link
from specchat.dataclass import dataclass
from specchat.formulas.latex import in_rows
from specchat.formulas.marks import add_math, inside, is_displayed, shown_formula
from specchat.tui.text.code import code_lines, language_of
from specchat.tui.text.lines import BLANK, EMPTY, TextLine, hang, styled
from specchat.tui.text.table import table_lines

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_SPAN_STYLES = {"strong": ".md-strong", "em": ".md-em", "s": ".md-strike", "link": ".md-link"}
_MAX_NESTING = 12
"""Quotes and lists nested deeper are shown at this depth."""
_PARSED_NESTING = 16
"""Token levels beyond which a block is shown as it was written: the parser drops what is nested deeper than 20."""

_MARGIN = "  "
"""Before a formula that stands alone."""
_BULLETS = "•◦▪"
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
"""The boxes of tasks in lists."""


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    add_math(parser)
    return parser


@dataclass
class _Indent:
    """The margin of the rows of a nested part: the bullet once, then space as wide."""

    first: Content
    rest: Content
    used: bool = False


@dataclass(frozen=True)
class MarkdownPart:
    """Something below which the nesting stops: a paragraph, a heading, code, a table, a formula or a rule."""

    kind: str
    first: Content = EMPTY
    rest: Content = EMPTY
    text: Content = EMPTY
    info: str = ""
    rows: tuple[tuple[Content, ...], ...] = ()
    aligns: tuple[str, ...] = ()
    gap: bool = False

    def lines(self, width: int) -> list[TextLine]:
        room = max(width - self.rest.cell_length, 8)
        if self.kind == "text":
            return hang(self.text, width, self.first, self.rest)
        if self.kind == "math":
            return self._formula(width, room)
        if self.kind == "rule":
            return [TextLine(self.first + styled("─" * min(room, 24), ".box"), copied=False)]
        inner: Sequence[TextLine] = (
            table_lines(self.rows, self.aligns, room)
            if self.kind == "table"
            else code_lines(self.text.plain, language_of(self.info), room)
        )
        prefixes = [self.first] + [self.rest] * (len(inner) - 1)
        return [_prefixed(prefix, line) for prefix, line in zip(prefixes, inner, strict=True)]

    def _formula(self, width: int, room: int) -> list[TextLine]:
        """Rows of a formula that stands alone; as it was written where it has no other form."""
        written = self.text.plain
        rows = in_rows(inside(written), room - len(_MARGIN))
        if rows is None or len(rows) == 1:
            words = styled(written if rows is None else _MARGIN + rows[0], ".md-math")
            return hang(words, width, self.first, self.rest)
        prefixes = [self.first] + [self.rest] * (len(rows) - 1)
        return [
            _prefixed(prefix, TextLine(styled(_MARGIN + row, ".md-math")))
            for prefix, row in zip(prefixes, rows, strict=True)
        ]


def _prefixed(prefix: Content, line: TextLine) -> TextLine:
    if not prefix:
        return line
    shift = len(prefix)
    end = None if line.end is None else line.end + shift
    return replace(line, content=prefix + line.content, start=line.start + shift, end=end)


@dataclass
class _Walker:
    """Turns markdown-it's flat tokens into parts."""

    parts: list[MarkdownPart] = field(default_factory=list)
    indents: list[_Indent] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    rows: list[list[Content]] = field(default_factory=list)
    aligns: list[str] = field(default_factory=list)
    heading: str = ""
    tight: bool = False

    def walk(self, tokens: "Sequence[Token]") -> list[MarkdownPart]:
        for token in tokens:
            self._token(token)
        return self.parts

    def _token(self, token: "Token") -> None:
        kind = token.type
        if kind in ("bullet_list_open", "ordered_list_open"):
            self.numbers.append(int(token.attrs.get("start") or 1) if kind.startswith("ordered") else None)
        elif kind in ("bullet_list_close", "ordered_list_close"):
            self.numbers.pop()
        elif kind == "list_item_open":
            self._open_item()
        elif kind == "blockquote_open":
            self.indents.append(_Indent(styled("▎ ", ".md-quote-bar"), styled("▎ ", ".md-quote-bar")))
        elif kind in ("list_item_close", "blockquote_close"):
            self.indents.pop()
        elif kind == "heading_open":
            self.heading = ".md-h1" if token.tag in ("h1", "h2") else ".md-h3"
        elif kind == "heading_close":
            self.heading = ""
        elif kind == "paragraph_open":
            self.tight = token.hidden
        elif kind in ("fence", "code_block"):
            self._add("code", text=Content(token.content.rstrip("\n")), info=token.info)
        elif kind == "hr":
            self._add("rule")
        elif kind == "html_block":
            self._add("text", text=Content(token.content.rstrip("\n")))
        else:
            self._table_or_text(token)

    def _table_or_text(self, token: "Token") -> None:
        kind = token.type
        if kind == "tr_open":
            self.rows.append([])
        elif kind == "th_open":
            self.aligns.append(str(token.attrs.get("style", "")).rpartition(":")[2])
        elif kind == "table_close":
            self._add("table", rows=tuple(map(tuple, self.rows)), aligns=tuple(self.aligns))
            self.rows, self.aligns = [], []
        elif kind == "inline":
            pieces = token.children or []
            if len(pieces) == 1 and pieces[0].type == "math" and is_displayed(pieces[0].content) and not self.rows:
                self._add("math", text=styled(pieces[0].content))
                return
            content = inline(pieces)
            if self.rows:
                self.rows[-1].append(content)
            else:
                content = self._task(content) if pieces and pieces[0].type == "text" else content
                self._add("text", text=content.stylize_before(self.heading) if self.heading else content)

    def _open_item(self) -> None:
        number = self.numbers[-1]
        if number is None:
            bullet = _BULLETS[(len(self.numbers) - 1) % 3] + " "
        else:
            bullet = f"{number}. "
            self.numbers[-1] = number + 1
        self.indents.append(_Indent(styled(bullet, ".md-bullet"), Content(" " * len(bullet))))

    def _task(self, content: Content) -> Content:
        """The words of a list's item, its box in the bullet's place where it is a task."""
        box, indent = _TASKS.get(content.plain[:4]), self.indents[-1] if self.indents else None
        if box is None or indent is None or indent.used or indent.first.plain.strip() not in _BULLETS:
            return content
        indent.first = styled(box, ".md-bullet")
        return content[4:]

    def _add(
        self,
        kind: str,
        text: Content = EMPTY,
        info: str = "",
        rows: tuple[tuple[Content, ...], ...] = (),
        aligns: tuple[str, ...] = (),
    ) -> None:
        shown = self.indents[:_MAX_NESTING]
        first = EMPTY.join([indent.rest if indent.used else indent.first for indent in shown])
        rest = EMPTY.join([indent.rest for indent in shown])
        for indent in shown:
            indent.used = True
        gap = bool(self.parts) and not (self.tight and kind == "text")
        self.parts.append(MarkdownPart(kind, first, rest, text, info, rows, aligns, gap))


def inline(tokens: "Sequence[Token]") -> Content:
    """Emphasis, code, links and breaks of one paragraph."""
    text: list[str] = []
    spans: list[Span] = []
    open_at: list[tuple[int, str]] = []
    length = 0

    def add(piece: str, style: str = "") -> None:
        nonlocal length
        piece = clean(piece)  # again: the parser turns entities such as &#8238; into the characters they name
        text.append(piece)
        if style:
            spans.append(Span(length, length + len(piece), style))
        length += len(piece)

    for token in tokens:
        kind, _, edge = token.type.rpartition("_")
        if token.type == "code_inline":
            add(token.content, ".md-code")
        elif token.type == "math":
            add(shown_formula(token.content), ".md-math")
        elif token.type in ("softbreak", "hardbreak"):
            add("\n")
        elif token.type == "image":
            add(f"[{token.content}]")
            add(f" ({token.attrs.get('src', '')})", ".md-url")
        elif edge == "open" and kind in _SPAN_STYLES:
            open_at.append((length, str(token.attrs.get("href", ""))))
        elif edge == "close" and kind in _SPAN_STYLES and open_at:
            start, href = open_at.pop()
            spans.append(Span(start, length, _SPAN_STYLES[kind]))
            if kind == "link":
                if is_web_link(href):
                    spans.append(Span(start, length, Style.from_meta({"href": href})))
                if href != "".join(text)[start:]:
                    add(f" ({href})", ".md-url")
        else:
            add(token.content)
    return Content("".join(text), spans)


def parse(source: str) -> list[MarkdownPart]:
    """The parts of one block's source."""
    tokens = _parser().parse(source)
    if max((token.level for token in tokens), default=0) > _PARSED_NESTING:
        return [MarkdownPart("text", text=Content(source.rstrip("\n")))]
    return _Walker().walk(tokens)


def block_lines(parts: Sequence[MarkdownPart], width: int) -> list[TextLine]:
    """Rows of a parsed block, with empty rows between loose parts."""
    lines: list[TextLine] = []
    for part in parts:
        if part.gap and lines:
            lines.append(BLANK)
        lines += part.lines(width)
    return lines
