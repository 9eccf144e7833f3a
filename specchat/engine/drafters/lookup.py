"""Prompt lookup (Saxena 2023): copies the tokens after an earlier occurrence of the same words.

It searches prompt and reply for the longest suffix of the text; among equals the latest wins.
"""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.draft import Copier, Copy
from specchat.engine.drafters.occurrences import KEY, Occurrences
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.strategy import Strategy

LONGEST = 32
"""Most tokens of a match that count."""
CANDIDATES = 64
"""Latest occurrences that are compared."""


class LookupDrafter(Copier):
    """Drafter that copies from the text so far."""

    name = "lookup"

    def __init__(self, here: Occurrences) -> None:
        """Initialise; `here` is the index of this chat, which other strategies may share."""
        self._here = here
        self._ends: Collection[int] = ()
        self._nothing = Copy(strategy=self.name)

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._ends = ends
        self._here.begin(prompt)

    def forget(self) -> None:
        self._here.clear()

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        self._here.grow(token_ids)
        return self.after(token_ids, (), limit) if self._here.has(token_ids) else self._nothing

    def after(self, token_ids: Sequence[int], drafted: Sequence[int], limit: int) -> Copy:
        """Propose up to `limit` tokens that followed the end of the indexed `token_ids` and `drafted` before."""
        end = drafted if len(drafted) >= KEY else [*token_ids[-KEY:], *drafted]
        if not self._here.has(end):
            return self._nothing
        source, matched = self._longest_match([*token_ids[-LONGEST:], *drafted])
        tokens = list(drafted)
        for i in range(source, source + limit):
            # A match that reaches the end of the text continues in the draft itself: repetition repeats.
            token = token_ids[i] if i < len(token_ids) else tokens[i - len(token_ids)]
            if token >= FIRST:
                break
            tokens.append(token)
            if token in self._ends:
                break
        return Copy(tokens[len(drafted) :], strategy=self.name, matched=matched)

    def _longest_match(self, end: Sequence[int]) -> tuple[int, int]:
        best = best_length = 0
        for length, at in self._here.matches(end, LONGEST, CANDIDATES):
            if length > best_length:
                best, best_length = at, length
                if length == LONGEST:
                    break
        return best, best_length


STRATEGY = Strategy(
    name="lookup",
    group="copied",
    title="Prompt lookup",
    summary="Drafts by copying what followed the same words earlier in the chat.",
    draft_length=8,
    notes="""It copies from the longest match of up to 32 tokens, the latest of equal ones (prompt lookup, Saxena 2023).

```
 prompt   ... rename total to amount: def add(total): return total + 1
 reply    def add(amount): return          the last words occurred above: "+ 1" is drafted
```

It costs microseconds a step with any model, and the verifying of its tokens. *Pays* for copying, editing and questions
about a text.""",
    make=lambda parts: LookupDrafter(parts.here),
    needs=("drafting",),
    arm="yes",
)
