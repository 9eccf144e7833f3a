"""Large pastes are folded into a short stand-in while the prompt is edited, and unfolded when it is sent."""

import re
from collections.abc import Mapping

from specchat.dataclass import dataclass

FOLD_ABOVE = 4_000
"""Characters."""
FOLD_ABOVE_LINES = 60
LARGEST = 4_000_000
"""Characters of one paste that are taken at all; more fits no model's context."""

UNFOLD_BELOW = 100_000
"""Characters that can be edited: a prompt box of more answers keys too slowly."""

_STAND_IN = re.compile(r"\[paste (\d+): [\d,]+ characters(?:, [\d,]+ lines)?\]")


@dataclass(frozen=True)
class Folded:
    """A stand-in in a line: its columns, and the text it stands for."""

    start: int
    end: int
    text: str


class Pastes:
    """The folded texts of the prompt being edited."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def fold(self, text: str) -> str:
        """`text` itself when short, else a stand-in for it."""
        if len(text) <= FOLD_ABOVE and text.count("\n") < FOLD_ABOVE_LINES:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text
        lines = text.rstrip("\n").count("\n") + 1
        return f"[paste {number}: {len(text):,} characters" + (f", {lines:,} lines]" if lines > 1 else "]")

    def unfold(self, prompt: str) -> str:
        """`prompt` with the stand-ins replaced; one that was edited stays as it is."""
        return _STAND_IN.sub(lambda match: self._texts.get(int(match[1]), match[0]), prompt)

    def at(self, line: str, column: int) -> Folded | None:
        """The stand-in at or right before `column` of `line`."""
        for match in _STAND_IN.finditer(line):
            if match.start() <= column <= match.end() and int(match[1]) in self._texts:
                return Folded(match.start(), match.end(), self._texts[int(match[1])])
        return None

    @property
    def texts(self) -> dict[int, str]:
        """The folded texts by number."""
        return dict(self._texts)

    def replace(self, texts: Mapping[int, str]) -> None:
        """Know these folded texts and no others."""
        self._texts = dict(texts)
