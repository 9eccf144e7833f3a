"""N-gram caches: copies the most frequent continuation of the last tokens, token by token.

Two tables are searched, this chat's and that of earlier replies (`earlier.py`), the longest n-gram first. A lookup
costs the same for any number of tokens (after the lookup caches of llama.cpp).
"""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.occurrences import LENGTHS, LONGEST, NgramPool, key_of
from specchat.engine.strategy import Strategy

SLOTS = 1 << 17
"""Cells of this chat's table: 1 MiB, enough for 32,000 tokens."""
HERE = {6: 1, 4: 1, 3: 1, 2: 1}
BEFORE = {6: 1, 4: 1, 3: 1, 2: 2}
"""Votes that a token needs, by match length, in this chat and in earlier replies."""
SPREAD = 2
"""Most draft tokens for each token of the match: a short match predicts little beyond."""


class NgramDrafter(Copier):
    """Drafter that copies by tables of fixed size; needs no draft model."""

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
        """Tokens in this chat's table, which grows when a draft is proposed."""

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        """Propose up to `limit` tokens that mostly followed the end of `token_ids`."""
        self._grow(token_ids)
        before, tables = tuple(token_ids[-LONGEST:]), ((self._here, HERE), (self._earlier.ngrams, BEFORE))
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

    def _grow(self, token_ids: Sequence[int]) -> None:
        known = len(self._text)
        if len(token_ids) > known:
            self._text += token_ids[known:]
            self._here.learn(self._text, known)


def _next(before: tuple[int, ...], tables: tuple[tuple[NgramPool, dict[int, int]], ...]) -> tuple[int | None, int]:
    """Return the token after the longest n-gram with enough votes in a table, and the length of that n-gram."""
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
    summary="Copies what mostly followed the last few words, also in earlier replies.",
    draft_length=8,
    notes="""It has the sources of `suffix`, in tables of fixed size: [ngrams.md](ngrams.md). *Pays* as `suffix` does,
at a cost that does not grow with the text.""",
    make=lambda parts: NgramDrafter(parts.earlier),
    needs=("drafting",),
)
