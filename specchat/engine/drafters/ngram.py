"""N-gram caches: the token that mostly followed the same few, token after token.

Two tables are asked, that of this chat and that of replies before (`earlier.py`), for the longest n-gram first. Each
look costs the same however much was taken in (after the lookup caches of llama.cpp).
"""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.ngram_pool import LENGTHS, LONGEST, NgramPool, key_of
from specchat.engine.strategy import Strategy

SLOTS = 1 << 17
"""Entries of this chat's table: 1 MiB, enough for 32,000 tokens."""
HERE = {6: 1, 4: 1, 3: 1, 2: 1}
BEFORE = {6: 1, 4: 1, 3: 1, 2: 2}
"""Votes that a token needs by the length of what matched, in this chat and in replies before."""
SPREAD = 2
"""Drafted tokens for each token of the match, at most: a short match says little about what is far."""


class NgramDrafter(Copier):
    """Copies by tables of fixed size; needs no draft model."""

    name = "ngram"

    def __init__(self, earlier: Earlier) -> None:
        self._earlier = earlier
        self._ends: Collection[int] = ()
        self.forget()

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._ends = ends
        if list(prompt[: len(self._text)]) != self._text:
            self.forget()

    def forget(self) -> None:
        self._here = NgramPool(SLOTS)
        self._text: list[int] = []
        """What this chat's table holds: a text is taken in when something is to be drafted for it."""

    def propose(self, text: Sequence[int], limit: int) -> Copy:
        """Up to `limit` tokens that mostly followed the end of `text`."""
        self._grow(text)
        before, tables = tuple(text[-LONGEST:]), ((self._here, HERE), (self._earlier.ngrams, BEFORE))
        copy = Copy(strategy=self.name)
        while len(copy.tokens) < limit:
            token, length = _next(before, tables)
            if token is None:
                break
            if not copy.tokens:
                copy.matched, limit = length, min(limit, SPREAD * length)
            copy.tokens.append(token)
            if token in self._ends:
                break
            before = (*before[1 - LONGEST :], token)
        return copy

    def _grow(self, text: Sequence[int]) -> None:
        known = len(self._text)
        if len(text) > known:
            self._text += text[known:]
            self._here.learn(self._text, known)


def _next(before: tuple[int, ...], tables: tuple[tuple[NgramPool, dict[int, int]], ...]) -> tuple[int | None, int]:
    """The token after the longest n-gram that a table is sure of, and how long that is."""
    for length in LENGTHS:
        if length <= len(before):
            key = key_of(before[-length:])
            for table, votes in tables:
                if (token := table.after(key, votes[length])) is not None:
                    return token, length
    return None, 0


STRATEGY = Strategy(
    name="ngram",
    group="copied",
    title="N-grams",
    summary="Copies what mostly followed the last few words, by small tables of this chat and of replies before.",
    draft_length=8,
    notes="""The same sources as `suffix`, by tables of fixed size ([ngrams.md](ngrams.md)). *Pays* as `suffix` does,
with an effort that does not grow with the text.""",
    make=lambda parts: NgramDrafter(parts.earlier),
    needs=("drafting",),
)
