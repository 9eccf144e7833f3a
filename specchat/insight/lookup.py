"""Estimate of prompt lookup on a text, from its words, without any model."""

import re
from collections import defaultdict

from specchat.dataclass import dataclass

_WORD = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_KEY = 2
_CANDIDATES = 16
_LONGEST = 16
_MOST = 600
"""Words at the end of prompt and reply that are looked at."""


@dataclass(frozen=True)
class Potential:
    """`drafts` are the words proposed at each step, `words` those of the reply."""

    drafts: tuple[int, ...]
    words: int

    @property
    def per_step(self) -> float:
        """Words a step."""
        return self.words / len(self.drafts) if self.drafts else 1.0


def potential(prompt: str, reply: str, length: int) -> Potential:
    """Decode `reply` with lookup drafts of up to `length` words, as the engine's drafter proposes them from tokens."""
    given, written = (_WORD.findall(part[-8 * _MOST :])[-_MOST:] for part in (prompt, reply))
    text = [*given, *written]
    ends: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    indexed, at, drafts = _KEY, len(given), []
    while at < len(text):
        while indexed < at:
            ends[tuple(text[indexed - _KEY : indexed])].append(indexed)
            indexed += 1
        source = _source(text, at, ends)
        if source is None:
            drafts.append(0)
            at += 1
            continue
        drafts.append(length)
        kept = 0
        while kept < length and at + kept < len(text) and text[source + kept] == text[at + kept]:
            kept += 1
        at += kept + 1
    return Potential(tuple(drafts), len(written))


def _source(text: list[str], at: int, ends: defaultdict[tuple[str, ...], list[int]]) -> int | None:
    """Place after the longest earlier occurrence of what stands before `at`, the latest of them."""
    if at < _KEY:
        return None
    best, best_length = None, 0
    for candidate in reversed(ends.get(tuple(text[at - _KEY : at]), [])[-_CANDIDATES:]):
        length = _KEY
        while length < min(_LONGEST, candidate) and text[candidate - 1 - length] == text[at - 1 - length]:
            length += 1
        if length > best_length:
            best, best_length = candidate, length
    return best
