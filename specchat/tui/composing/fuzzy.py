"""Names that hold the letters typed, best first."""

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest
from typing import TypeVar

from textual.fuzzy import FuzzySearch

Candidate = TypeVar("Candidate")
_SCORE = FuzzySearch().score


def positions(query: str, text: str) -> Sequence[int] | None:
    """Positions of the letters of `query` in `text`, both case-folded: together if they do, else each after the last.

    None when they do not all occur in this order. Takes time linear in `text`: `FuzzySearch.match` tries every way to
    place the letters, which a long path can make millions.
    """
    start = text.rfind("/", 0, len(text) - 1) + 1
    at = text.find(query, start)
    if at < 0:
        at = text.find(query)
    if at >= 0:
        return range(at, at + len(query))
    found = []
    for letter in query:
        at = text.find(letter, at + 1)
        if at < 0:
            return None
        found.append(at)
    return found


def ranked(
    query: str, candidates: Iterable[Candidate], text: Callable[[Candidate], str], limit: int
) -> list[tuple[Candidate, Sequence[int]]]:
    """The `limit` best candidates with the places of the letters in `text(candidate)`; ties stay in their order."""
    wanted = query.lower()
    if not wanted:
        return [(candidate, ()) for candidate, _ in zip(candidates, range(limit), strict=False)]
    found = []
    for number, candidate in enumerate(candidates):
        shown = text(candidate).lower()
        places = positions(wanted, shown)
        if places is not None:
            together = 2.0 if shown == wanted else 1.5 if isinstance(places, range) else 1.0
            found.append((together * _SCORE(shown, places), -len(shown), -number, candidate, places))
    best = nlargest(limit, found, key=lambda entry: entry[:3])
    return [(candidate, places) for *_, candidate, places in best]
