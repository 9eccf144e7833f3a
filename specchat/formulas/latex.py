"""Formulas of LaTeX as characters: on one line, or several rows where fractions and matrices have room."""

import re
from functools import lru_cache

from rich.cells import cell_len

from specchat.formulas.box import FormulaBox, fenced, fraction, in_a_row, table
from specchat.formulas.line import FormulaLine, bracketed, is_operator, joined
from specchat.formulas.symbols import (
    ACCENTS,
    ALPHABETS,
    FENCES,
    FUNCTIONS,
    IGNORED,
    LINES,
    PASSED,
    TEXTS,
    lettered,
    script,
    symbol,
)

_LONGEST = 3_000
"""Characters above which a formula stays as it was written."""
_DEEPEST = 40
"""Groups inside of each other."""
_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|\s+|.", re.DOTALL)
_ROW_ENDS = ("", "}", "&", "\\\\", "\\right", "\\end")


class _Unknown(Exception):
    """Something in a formula has no form here."""


class _Reader:
    """Reads a formula; with `flat` everything goes on one line."""

    def __init__(self, formula: str, *, flat: bool) -> None:
        self._tokens = _TOKEN.findall(formula)
        self._at = 0
        self._flat = flat
        self._depth = 0

    def whole(self) -> FormulaBox:
        """All of it.

        Raises:
            _Unknown: something in it has no form.
        """
        rows = self._rows()
        if self._peek():
            raise _Unknown
        return self._stacked(rows, "rl", " ")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> str:
        token = self._peek()
        if not token or (wanted and token != wanted):
            raise _Unknown
        self._at += 1
        return token

    def _skip_space(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _rows(self) -> list[list[FormulaBox]]:
        """Rows of cells, up to what ends them all."""
        rows = [[self._row()]]
        while self._peek() in ("&", "\\\\"):
            if self._take() == "&":
                rows[-1].append(self._row())
            else:
                rows.append([self._row()])
        return rows if len(rows) == 1 or any(cell.rows != ("",) for cell in rows[-1]) else rows[:-1]

    def _stacked(self, rows: list[list[FormulaBox]], aligns: str, gap: str) -> FormulaBox:
        if len(rows) == 1 and len(rows[0]) == 1:
            return rows[0][0]
        if self._flat:
            return FormulaBox(("; ".join(gap.join(cell.rows[0] for cell in row) for row in rows),))
        return table(rows, aligns, gap)

    def _row(self) -> FormulaBox:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        line = FormulaLine()
        while self._peek() not in _ROW_ENDS:
            self._piece(line)
        self._depth -= 1
        return line.box

    def _piece(self, line: FormulaLine) -> None:
        token = self._take()
        if token.isspace():
            line.space()
        elif token in ("^", "_"):
            line.script(script(self._one_line(), token), lowered=token == "_")
        elif token == "'":
            line.script("′")
        elif token == "{":
            line.add(self._group())
        elif token == "~":
            line.space()
        elif token[0] == "\\":
            self._command(line, token[1:])
        elif is_operator(token):
            line.operator("−" if token == "-" else token)
        else:
            line.put(token)

    def _group(self) -> FormulaBox:
        box = self._row()
        self._take("}")
        return box

    def _argument(self) -> FormulaBox:
        self._skip_space()
        if self._peek() == "{":
            self._take()
            return self._group()
        line = FormulaLine()
        self._piece(line)
        return line.box

    def _one_line(self) -> str:
        """An argument as text."""
        flat, self._flat = self._flat, True
        text = self._argument().rows[0]
        self._flat = flat
        return text

    def _raw(self) -> str:
        """The words of an argument in braces."""
        self._skip_space()
        self._take("{")
        start, depth = self._at, 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self._take(), 0)
        return "".join(self._tokens[start : self._at - 1])

    # Commands

    def _command(self, line: FormulaLine, name: str) -> None:
        if name.rstrip("*") in TEXTS:
            line.put(re.sub(r"\\(.)", r"\1", self._raw()))
        elif name.rstrip("*") in FUNCTIONS:
            line.function(name.rstrip("*").removeprefix("b") if name == "bmod" else name.rstrip("*"))
        elif name in IGNORED:
            pass
        elif name in PASSED:
            line.add(self._argument())
        elif name in ALPHABETS:
            line.put("".join(lettered(name, letter) for letter in self._one_line()))
        elif name in ACCENTS:
            line.put("".join(letter + ACCENTS[name] for letter in self._one_line()))
        elif (build := _BUILT.get(name)) is not None:
            line.add(build(self))
        else:
            self._symbol(line, name)

    def _symbol(self, line: FormulaLine, name: str) -> None:
        character = symbol(name)
        if character is None:
            raise _Unknown
        if is_operator(character):
            line.operator(character)
        elif character.isspace():
            line.space(character)
        else:
            line.put(character)
        if name.isalpha() and (character.isalpha() or character in "∂∇"):
            self._skip_space()

    def fraction(self) -> FormulaBox:
        over, under = self._argument(), self._argument()
        if not self._flat:
            return fraction(over, under)
        above = over.rows[0]
        return FormulaBox((f"{above if joined(above) else f'({above})'}/{bracketed(under.rows[0])}",))

    def root(self) -> FormulaBox:
        self._skip_space()
        degree = ""
        if self._peek() == "[":
            self._take()
            while self._peek() != "]":
                degree += self._take()
            self._take()
        inner = self._argument()
        sign = {"": "√", "2": "√", "3": "∛", "4": "∜"}.get(degree) or f"{script(degree, '^')}√"
        if not inner.flat:
            return in_a_row([FormulaBox((sign,)), fenced(inner, "(", ")")])
        return FormulaBox((sign + bracketed(inner.rows[0]),))

    def binomial(self) -> FormulaBox:
        over, under = self._argument(), self._argument()
        if self._flat:
            return FormulaBox((f"C({over.rows[0]}, {under.rows[0]})",))
        return fenced(table([[over], [under]], "c", ""), "(", ")")

    def between(self) -> FormulaBox:
        """A formula between `\\left` and `\\right`, with their delimiters."""
        left = self._delimiter()
        inner = self._row()
        self._take("\\right")
        return fenced(inner, left, self._delimiter())

    def _delimiter(self) -> str:
        self._skip_space()
        token = self._take()
        if token == ".":
            return ""
        character = symbol(token[1:]) if token[0] == "\\" else token
        if not character:
            raise _Unknown
        return character

    def environment(self) -> FormulaBox:
        name = self._raw().rstrip("*")
        if name not in FENCES and name not in LINES:
            raise _Unknown
        aligns = "rl" if name in LINES else "l" if name == "cases" else "c"
        if name in ("array", "alignat"):
            columns = "".join(letter for letter in self._raw() if letter in "lcr")
            aligns = columns or aligns
        rows = self._rows()
        self._take("\\end")
        if self._raw().rstrip("*") != name:
            raise _Unknown
        left, right = (*FENCES.get(name, ""), "", "")[:2]
        return fenced(self._stacked(rows, aligns, " " if name in LINES else "  "), left, right)

    def boxed(self) -> FormulaBox:
        return fenced(self._argument(), "[", "]")

    def stacked(self) -> FormulaBox:
        """`\\overset{a}{b}`, and arrows with words above."""
        over, under = self._one_line(), self._one_line()
        return FormulaBox((under + script(over, "^"),))

    def arrow(self) -> FormulaBox:
        return FormulaBox((f" ─{self._one_line()}→ ",))

    def modulus(self) -> FormulaBox:
        return FormulaBox((f" (mod {self._one_line()})",))

    def tag(self) -> FormulaBox:
        return FormulaBox((f"  ({self._raw()})",))

    def negated(self) -> FormulaBox:
        return FormulaBox((f" {self._one_line().strip()}\u0338 ",))

    def coloured(self) -> FormulaBox:
        self._raw()
        return self._argument()

    def label(self) -> FormulaBox:
        self._raw()
        return FormulaBox(("",))


_BUILT = {
    **dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac"), _Reader.fraction),
    **dict.fromkeys(("binom", "dbinom", "tbinom"), _Reader.binomial),
    **dict.fromkeys(("overset", "stackrel"), _Reader.stacked),
    "sqrt": _Reader.root, "left": _Reader.between, "begin": _Reader.environment, "boxed": _Reader.boxed,
    "xrightarrow": _Reader.arrow, "pmod": _Reader.modulus, "tag": _Reader.tag, "not": _Reader.negated,
    "textcolor": _Reader.coloured, "label": _Reader.label,
}  # fmt: skip


@lru_cache(256)
def _boxed(formula: str, *, flat: bool) -> FormulaBox | None:
    if len(formula) > _LONGEST:
        return None
    try:
        return _Reader(formula, flat=flat).whole()
    except _Unknown:
        return None


def on_a_line(formula: str) -> str | None:
    """A formula without its marks on one line; None where something in it has no form there."""
    box = _boxed(formula.strip(), flat=True)
    return box.rows[0].strip() if box is not None else None


def in_rows(formula: str, width: int) -> list[str] | None:
    """The same in several rows, where it needs them and has `width` cells for them, else on one line."""
    box = _boxed(formula.strip(), flat=False)
    if box is not None and max(map(cell_len, box.rows)) <= width:
        return [row.rstrip() for row in box.rows]
    line = on_a_line(formula)
    return [line] if line is not None else None
