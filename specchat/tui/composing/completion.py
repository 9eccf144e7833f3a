"""Candidates for the place of the word before the cursor."""

from collections.abc import Sequence

from specchat.dataclass import dataclass


@dataclass(frozen=True)
class Suggestion:
    """`text` goes into the prompt; `label`, with the letters at `places` marked, and `words` are shown."""

    text: str
    label: str
    words: str = ""
    places: Sequence[int] = ()
    sends: bool = False
    """True if enter sends the prompt as soon as it is taken."""


@dataclass(frozen=True)
class Completion:
    """Choices for columns `start` to `end` of the cursor's line, best first; `note` is a sentence below them."""

    start: int
    end: int
    choices: tuple[Suggestion, ...]
    note: str = ""
    eager: bool = True
    """True if the first choice is marked from the beginning, so that enter takes it."""
