"""Kinds of text: by how much of its end occurred before, as drafts fare differently; new prose apart from new code."""

from specchat.engine.decoding.pace import Copies
from specchat.engine.drafters.occurrences import KEY

FIRST = (0.4, 0.4, 0.7, 0.9, 0.95)
LATER = (0.8, 0.8, 0.85, 0.95, 0.97)
"""Shares of copies assumed to stay, by kind of text: of their first tokens, and of each that follows one that stays."""
ALIKE, NEW = len(FIRST), 2
"""Of the end nothing occurred before, 2 or 3 tokens, 4 to 7, 8 to 15, more; the first two kinds are new text."""
KINDS = ALIKE + NEW
"""With those of new code."""


def kind(matched: int, code: bool = False) -> int:
    """The kind of a text whose last `matched` tokens occurred before."""
    alike = 0 if matched < KEY else min(matched.bit_length() - 1, ALIKE - 1)
    return ALIKE + alike if code and alike < NEW else alike


def copies_by_kind() -> list[Copies]:
    """What copies bring."""
    return [Copies(*assumed) for assumed in zip(FIRST + FIRST[:NEW], LATER + LATER[:NEW], strict=True)]
