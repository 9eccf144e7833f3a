"""Formulas in Markdown: no emphasis, escapes or links inside them. They are shown as characters where they can be."""

from typing import TYPE_CHECKING

from specchat.formulas.latex import on_a_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline

PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
"""The marks that open a formula, and those that close it."""

DISPLAYED = {"$$": "$$", "\\[": "\\]"}
"""Delimiters that may stand on lines of their own."""


def shown_formula(written: str) -> str:
    """A formula with its marks, on one line of characters; as it was written where it has no such form."""
    line = on_a_line(inside(written))
    return written if line is None else line


def inside(written: str) -> str:
    """A formula without its marks; as it was written where one of them is missing."""
    written = written.strip()
    for opening, closing in PAIRS:
        if written.startswith(opening):
            whole = written.endswith(closing) and len(written) > len(opening) + len(closing) - 1
            return written[len(opening) : -len(closing)] if whole else written
    return written


def with_shown_formulas(text: str) -> str:
    """`text` with its formulas on lines of characters; one that has no such form stays without its marks."""
    parts, at = [], 0
    while at < len(text):
        end = formula_end(text, at) if text[at] in "$\\" else 0
        if end:
            written = text[at:end]
            shown = shown_formula(written)
            parts.append(inside(written) if shown == written else shown)
        else:
            end = at + 1 + (text[at] == "\\")  # an escaped character opens none
            parts.append(text[at:end])
        at = end
    return "".join(parts)


def is_displayed(written: str) -> bool:
    """True if a formula wants rows for itself."""
    return written.lstrip()[:2] in DISPLAYED


def formula_end(text: str, start: int) -> int:
    """End of the formula that opens at `start`, 0 when none does.

    A single dollar opens one only with no space after it, and closes one only with no space before it and no digit
    after it, so that prices stay prices (pandoc's rule).
    """
    for opening, closing in PAIRS:
        if not text.startswith(opening, start):
            continue
        inner = start + len(opening)
        end = text.find(closing, inner)
        while end >= 0 and text[end - 1] == "\\" and closing[0] == "$":
            end = text.find(closing, end + 1)
        if end <= inner or not text[inner:end].strip() or (opening == "$" and not _hugs(text, inner, end)):
            return 0
        return end + len(closing)
    return 0


def _hugs(text: str, inner: int, end: int) -> bool:
    return not (text[inner].isspace() or text[end - 1].isspace() or text[end + 1 : end + 2].isdigit())


def _rule(state: "StateInline", silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    end = formula_end(state.src, state.pos)
    if not end or end > state.posMax:
        return False
    if not silent:
        state.push("math", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def add_math(parser: "MarkdownIt") -> None:
    """Let `parser` make a `math` token of each formula, ahead of everything that would take it apart."""
    parser.inline.ruler.before("escape", "math", _rule)
