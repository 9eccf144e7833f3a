"""Escape codes in what a terminal pastes, taken out before Textual reads them as keys, and what no paste may hold.

Textual looks at each character, so that a paste of 50 MB would hold the app up for a minute: what is past LARGEST
is left out here.
"""

import re

from specchat.tui.pastes import LARGEST

START, END = "\x1b[200~", "\x1b[201~"
_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[!-/]+[0-~]|[78=>cDEHMNOZ\\])?")
"""Codes of ECMA-48: with parameters, with a text, of two or three characters, and the escape character alone."""
_CUT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[!-/]*)\Z")
"""The beginning of a code, or of END, of which more may come."""
_LONGEST = 4096
"""Characters of a beginning that more is waited for."""


class EscapeFilter:
    """Passes on what comes from a terminal, piece by piece. Outside of pastes nothing is changed or held back."""

    def __init__(self) -> None:
        self._inside = False
        self._seen = ""
        """The last characters before a paste, in which START may have begun."""
        self._held = ""
        """The end of a paste so far, which may be the beginning of a code."""
        self._room = 0
        """Characters of the paste that are still passed on."""

    def feed(self, text: str) -> str:
        """The part of the next piece to read."""
        passed = []
        while text:
            part, text = self._pasted(text) if self._inside else self._typed(text)
            passed.append(part)
        return "".join(passed)

    def _typed(self, text: str) -> tuple[str, str]:
        """Input before the beginning of a paste, and the rest."""
        seen = self._seen + text
        at = seen.find(START)
        if at < 0:
            self._seen = seen[1 - len(START) :]
            return text, ""
        begins = at + len(START) - len(self._seen)
        self._seen, self._inside, self._room = "", True, LARGEST + 1
        return text[:begins], text[begins:]

    def _pasted(self, text: str) -> tuple[str, str]:
        """Input up to the end of the paste, and the rest."""
        pasted, end, rest = (self._held + text).partition(END)
        self._inside, self._held = not end, ""
        if self._inside and (cut := _CUT.search(pasted)) and len(cut[0]) < _LONGEST:
            pasted, self._held = pasted[: cut.start()], cut[0]
        if not self._room:
            return end, rest
        pasted = _CODE.sub("", pasted)[: self._room]
        self._room -= len(pasted)
        return pasted + end, rest
