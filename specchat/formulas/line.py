"""A line of a formula while it is read: boxes and text, with the spaces that operators and functions ask for."""

import re
import unicodedata

from specchat.formulas.box import FormulaBox, in_a_row
from specchat.formulas.symbols import BIG

_IN_BRACKETS = re.compile(r"\([^()]*\)")
_CALL = re.compile(r"[\w^]*\([^()]*\)")
_SIGNS = "+-−±∓"


class FormulaLine:
    """Boxes side by side, and the text at their end."""

    def __init__(self) -> None:
        self._boxes: list[FormulaBox] = []
        self._text = ""
        self._loose = False
        """True after the name of a function: the space behind it gives way to a bracket or a script."""

    def add(self, box: FormulaBox) -> None:
        if box.flat:
            self.put(box.rows[0])
        else:
            self._boxes += [FormulaBox((self._text,)), box]
            self._text, self._loose = "", False

    def put(self, text: str) -> None:
        """Text as it is."""
        if text[:1] == " " or (self._loose and text[:1] in ("(", "[")):
            self._text = self._text.rstrip()
        self._text, self._loose = self._text + text, False

    def space(self, text: str = " ") -> None:
        if not self._text.endswith(" ") and (self._text or self._boxes) and not self._text.endswith(("(", "[")):
            self._text += text

    def script(self, text: str, *, lowered: bool = False) -> None:
        if self._boxes and not self._text:
            tall = self._boxes[-1]
            self._boxes.append(FormulaBox((text,), tall.base - (len(tall.rows) - 1 if lowered else 0)))
        else:
            self._text, self._loose = self._text.rstrip() + text, False

    def function(self, name: str) -> None:
        if self._text[-1:].isalnum():
            self._text += " "
        self._text, self._loose = f"{self._text}{name} ", True

    def operator(self, character: str) -> None:
        """A sign or a relation, with spaces around it; a sign of what follows has none."""
        before = self._text.rstrip()
        alone = not before and not self._boxes
        if character in _SIGNS and (alone or before[-1:] in ("(", "[", "{", ",") or self._ended_by_operator(before)):
            self._text += character
        else:
            self._text = f"{before}{'' if alone else ' '}{character} "
        self._loose = False

    def _ended_by_operator(self, before: str) -> bool:
        return self._text.endswith(" ") and bool(before) and is_operator(before[-1])

    @property
    def box(self) -> FormulaBox:
        return in_a_row([*self._boxes, FormulaBox((self._text.rstrip(),))])


def is_operator(character: str) -> bool:
    """True for a sign, a relation or an arrow."""
    return character == "-" or (unicodedata.category(character[0]) == "Sm" and character not in BIG) or character in (
        "→←↔⇒⇐⇔⟹⟸⟺↦∣"
    )  # fmt: skip


def joined(text: str) -> bool:
    """True if no space is outside of brackets."""
    while (inner := _IN_BRACKETS.sub("", text)) != text:
        text = inner
    return " " not in text


def bracketed(text: str) -> str:
    """`text` in brackets, unless it is one thing: a number, a name, a call."""
    single = all(letter.isalnum() or letter in "∂∇√′.%" or unicodedata.combining(letter) for letter in text)
    return text if single or _CALL.fullmatch(text) else f"({text})"
