"""Large pastes are folded into a short stand-in while the prompt is edited, and unfolded when it is sent."""

import re

FOLD_ABOVE = 4_000
"""Characters."""
FOLD_ABOVE_LINES = 60
LARGEST = 4_000_000
"""Characters of one paste that are taken at all; more fits no model's context."""

_STAND_IN = re.compile(r"\[paste (\d+): [\d,]+ characters\]")


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
        return f"[paste {number}: {len(text):,} characters]"

    def unfold(self, prompt: str) -> str:
        """`prompt` with the stand-ins replaced; one that was edited stays as it is."""
        return _STAND_IN.sub(lambda match: self._texts.get(int(match[1]), match[0]), prompt)

    def clear(self) -> None:
        self._texts.clear()
