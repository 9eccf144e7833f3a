"""The beginning of a message on one line, without marks of Markdown and LaTeX."""

import re

from specchat.clean import one_line

_LEFT_OUT = re.compile(
    r"^ {0,3}(?:`{3,}.*|~{3,}.*|[-*_=]{3,} *|\|?(?: *:?-{2,}:? *\|)+.*)$"  # fences, rules, lines below table heads
    r"|^ {0,3}#{1,6} +| +#+ *$"
    r"|^ *(?:> ?)+|^ *[-*+] +(?:\[[ xX]\] +)?",
    re.MULTILINE,
)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_AROUND = re.compile(r"(\*{1,3}|~~|`{1,2}|(?<!\w)_{1,2})(?=\S)(.+?)(?<=\S)\1(?!\w)")
_LENGTH = 120
"""Characters."""


def preview(text: str) -> str:
    """The first words of `text`."""
    text = _LINK.sub(r"\1", _LEFT_OUT.sub("", text))
    if "$" in text or "\\" in text:
        from specchat.formulas.marks import with_shown_formulas

        text = with_shown_formulas(text)
    return one_line(_AROUND.sub(r"\2", _AROUND.sub(r"\2", text)).lstrip("*_`"), _LENGTH)
