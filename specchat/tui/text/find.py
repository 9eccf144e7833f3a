"""Find words in a chat: in the texts of its messages first, then in the rows that show them."""

import re
from collections.abc import Sequence

from specchat.chat.turn import Turn
from specchat.dataclass import dataclass
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.lines import TextLine

_BETWEEN = r"[*_~`]*\s+(?:[>#|*_~`]+\s*)*"
"""Characters that may stand between two words of the source that are shown side by side."""


def pattern_of(query: str) -> re.Pattern[str] | None:
    """The pattern to look for; None for nothing. Case counts only where `query` has capitals."""
    words = query.split()
    if not words:
        return None
    flags = re.NOFLAG if any(char.isupper() for char in query) else re.IGNORECASE
    return re.compile(_BETWEEN.join(re.escape(word) for word in words), flags)


@dataclass(frozen=True)
class Match:
    """A place in a message's text; `number` is that of its turn."""

    number: int
    said: Said
    start: int

    @property
    def order(self) -> tuple[int, bool, int]:
        """Sorts matches as they stand in the chat."""
        return self.number, self.said.by == "model", self.start


def find_all(turns: Sequence[Turn], pattern: re.Pattern[str]) -> list[Match]:
    """All matches in the chat, in its order."""
    found: list[Match] = []
    for number, turn in enumerate(turns):
        for said in (Said(turn, "you"), Said(turn, "model")):
            found += [Match(number, said, match.start()) for match in pattern.finditer(said.text)]
    return found


Span = tuple[int, int, int]
"""A row of a section, and the characters from and up to which it is part of a match."""


def found_in(lines: Sequence[TextLine], pattern: re.Pattern[str]) -> list[list[Span]]:
    """The matches in rows as they are shown, wrapped ones across rows. Ornament is not looked at."""
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for line in lines:
        starts.append(length)
        part = line.text + (line.glue if line.soft else "\n") if line.copied else "\n"
        parts.append(part)
        length += len(part)
    matches: list[list[Span]] = []
    for match in pattern.finditer("".join(parts)):
        spans: list[Span] = []
        for row, (line, start) in enumerate(zip(lines, starts, strict=True)):
            low = max(match.start() - start, 0)
            high = min(match.end() - start, len(line.text))
            if line.copied and low < high:
                spans.append((row, line.start + low, line.start + high))
        if spans:
            matches.append(spans)
    return matches
