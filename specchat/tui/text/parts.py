"""A verify step's pieces, which are runs of tokens, taken apart by the texts of the accepted draft tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.events import Drafted, Step

_OWN = ("target", "bonus", "plain")
"""Sources of the token that the target itself adds to a step."""


@dataclass(frozen=True, slots=True)
class TokenPart:
    """One token, the step's number `position` from 0; a run of tokens without boundaries is one, at None."""

    text: str
    source: str
    position: int | None


def parts_of(step: Step) -> list[TokenPart]:
    """The text that a step wrote, token by token.

    Text that was held back, as of a character in several tokens, comes with a later step and fits no drafted token.
    """
    kept = step.drafts[: step.accepted]
    parts: list[TokenPart] = []
    done = 0
    for piece in step.pieces:
        if piece.source in _OWN:
            last = piece is step.pieces[-1]
            parts.append(TokenPart(piece.text, piece.source, step.accepted if last else None))
            continue
        found = _apart(piece.text, kept[done:])
        if found is None:
            parts.append(TokenPart(piece.text, piece.source, None))
            done = len(kept)
        else:
            parts += [TokenPart(text, piece.source, done + index) for index, text in enumerate(found)]
            done += len(found)
    return parts


def _apart(run: str, tokens: Sequence[Drafted]) -> list[str] | None:
    """`run` as the first of `tokens`, which may lack the space before them; None where they are not what it is.

    Marks are no text.
    """
    found: list[str] = []
    at = 0
    for token in tokens:
        if at == len(run):
            break
        spelt = token.text
        text = next((text for text in (spelt, f" {spelt}") if text and run.startswith(text, at)), None)
        if text is None and not token.mark:
            return None
        text = text or ""
        found.append(text)
        at += len(text)
    return found if at == len(run) else None
