"""The characters that LaTeX's commands stand for. Most are named in HTML as there: `html.entities` has them."""

import unicodedata
from functools import cache
from html.entities import html5

_NOT_AS_IN_HTML = {
    "ast": "∗", "asymp": "≍", "bigcirc": "◯", "cdot": "·", "cdots": "⋯", "circ": "∘", "colon": ":", "dag": "†",
    "ddots": "⋱", "diamond": "⋄", "div": "÷", "dots": "…", "dotsb": "…", "dotsc": "…", "exists": "∃", "hslash": "ℏ",
    "iff": "⟺", "iint": "∬", "implies": "⟹", "impliedby": "⟸", "infty": "∞", "land": "∧", "lbrace": "{",
    "lbrack": "[", "ldots": "…", "gets": "←", "lnot": "¬", "lor": "∨", "lVert": "‖", "lvert": "|", "mid": "∣",
    "neg": "¬", "neq": "≠", "nexists": "∄", "oslash": "⊘", "partial": "∂", "prime": "′", "rVert": "‖", "rbrace": "}",
    "rbrack": "]", "rvert": "|", "star": "⋆", "to": "→", "varnothing": "∅", "vdots": "⋮", "Vert": "‖",
    "backslash": "\\", "blacksquare": "■", "checkmark": "✓", "square": "□",
    "{": "{", "}": "}", "%": "%", "$": "$", "#": "#", "&": "&", "_": "_", "|": "‖",
    ",": " ", ";": " ", ":": " ", " ": " ", "!": "", "quad": "  ", "qquad": "    ",
}  # fmt: skip
FUNCTIONS = {
    "arccos", "arcsin", "arctan", "arg", "argmax", "argmin", "cos", "cosh", "cot", "coth", "csc", "deg", "det", "dim",
    "exp", "gcd", "hom", "inf", "ker", "lcm", "lg", "lim", "liminf", "limsup", "ln", "log", "max", "min", "mod",
    "bmod", "Pr", "sec", "sin", "sinh", "softmax", "sup", "tan", "tanh",
}  # fmt: skip
"""Names that are written out, with a space before what follows."""
IGNORED = {
    "big", "Big", "bigg", "Bigg", "bigl", "Bigl", "biggl", "Biggl", "bigr", "Bigr", "biggr", "Biggr", "bigm",
    "displaystyle", "textstyle", "limits", "nolimits", "scriptstyle", "middle", "nonumber", "notag",
}  # fmt: skip
TEXTS = {
    "text", "textrm", "textbf", "textit", "texttt", "textsf", "mbox", "mathrm", "operatorname", "mathit", "mathsf",
    "mathtt",
}  # fmt: skip
"""Commands whose argument is words, spaces and all."""
PASSED = {
    "mathbf", "boldsymbol", "bm", "underline", "mathop", "mathbin", "mathrel", "overbrace", "underbrace",
}  # fmt: skip
ALPHABETS = {"mathbb": "DOUBLE-STRUCK", "mathcal": "SCRIPT", "mathscr": "SCRIPT", "mathfrak": "BLACK-LETTER"}
ACCENTS = {
    "hat": "\u0302", "widehat": "\u0302", "bar": "\u0304", "overline": "\u0305", "tilde": "\u0303", "dot": "\u0307",
    "widetilde": "\u0303", "vec": "\u20d7", "overrightarrow": "\u20d7", "ddot": "\u0308", "check": "\u030c",
}  # fmt: skip
BIG = "∑∏∐∫∬∭∮√∛∜∂∇∀∃∄¬∞⋂⋃⨁⨂|"
"""Mathematical characters with no space around them."""
FENCES = {
    "matrix": "", "smallmatrix": "", "pmatrix": "()", "bmatrix": "[]", "vmatrix": "||", "Vmatrix": "‖‖",
    "Bmatrix": "{}", "cases": "{", "array": "",
}  # fmt: skip
"""Delimiters around the rows of an environment, by its name."""
LINES = ("aligned", "align", "gathered", "gather", "equation", "split", "multline", "alignat", "eqnarray")
"""Environments of formulas one above the other."""


def symbol(name: str) -> str | None:
    """The character of a command, without its backslash; None where there is none."""
    if name in _NOT_AS_IN_HTML:
        return _NOT_AS_IN_HTML[name]
    if name.startswith("var") and name.removeprefix("var") in ("epsilon", "phi"):
        return html5[name.removeprefix("var") + ";"]
    if name in ("epsilon", "phi"):
        return html5[f"var{name};"]
    return html5.get(f"{name};")


def lettered(alphabet: str, letter: str) -> str:
    """A letter of one of `ALPHABETS`; the letter itself where fonts of terminals may lack it."""
    kind = "CAPITAL" if letter.isupper() else "SMALL"
    prefixes = ("", "MATHEMATICAL ") if alphabet == "mathbb" else ("",)
    for prefix in prefixes:
        name = f"{prefix}{ALPHABETS[alphabet]} {'DIGIT' if letter.isdigit() else kind} "
        try:
            return unicodedata.lookup(name + (unicodedata.name(letter).split()[-1] if letter.isalnum() else ""))
        except (KeyError, ValueError):
            continue
    return letter


@cache
def _raised() -> tuple[dict[int, str], dict[int, str]]:
    """Characters by those that they are raised or lowered forms of."""
    tables: dict[str, dict[int, str]] = {"<super>": {}, "<sub>": {}}
    for first, last in ((0xB2, 0xB9), (0x2C7C, 0x2C7D), (0x2070, 0x209C), (0x1D2C, 0x1D6A), (0x1D9B, 0x1DBF)):
        for code in range(first, last + 1):
            kind, _, base = unicodedata.decomposition(chr(code)).partition(" ")
            if kind in tables and " " not in base:
                tables[kind].setdefault(int(base, 16), chr(code))
    for table in tables.values():
        table[ord("-")] = table[ord("−")]
    tables["<super>"] |= {ord(plain): raised for plain, raised in zip("∘′*∗†⊤", "°′**†ᵀ", strict=True)}
    return tables["<super>"], tables["<sub>"]


def script(text: str, mark: str) -> str:
    """`text` raised (`^`) or lowered (`_`), with the mark before it where characters for it are missing."""
    table = _raised()[mark == "_"]
    text = text.replace(" ", "")
    if all(ord(character) in table for character in text):
        return text.translate(table)
    return mark + (text if len(text) == 1 else f"({text})")
