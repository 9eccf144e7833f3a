"""What a family that copies would draft."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specchat.engine.decoding.draft import Drafter, Drafts


@dataclass
class Guess:
    """A tree of tokens in depth-first order, node i + 1 being `tokens[i]`, which follows node `parents[i]`.

    `parents` are empty for a chain. `shares` says how many of the places that got to a token's parent went on with it,
    empty where the family has none to tell; `score` is the sum of the probabilities of the paths to all tokens;
    `matched` counts the last tokens of the text that occurred before.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    score: float = 0.0
    matched: int = 0

    def fill(self, drafts: Drafts, limit: int) -> None:
        """Draft the first `limit` tokens of it."""
        drafts.fill(self.tokens[:limit], self.shares[:limit], self.parents[:limit])

    def outcome(self, new: Sequence[int]) -> list[bool | None]:
        """Whether each token is in the text, which went on with `new`; None where that is beyond them."""
        depths, found = [0], [True]
        outcome: list[bool | None] = []
        for node, token in enumerate(self.tokens):
            parent = self.parents[node] if self.parents else node
            depth = depths[parent]
            known = depth < len(new)
            right = found[parent] and known and new[depth] == token
            outcome.append(right if known or not found[parent] else None)
            depths.append(depth + 1)
            found.append(right or (found[parent] and not known))
        return outcome


NOTHING = Guess()
"""Where nothing can be copied, which is most often so; nobody adds to it."""


class Copier(Drafter, Protocol):
    """A family that copies: what it would draft is known at once. It takes in a text when it is asked, not by steps."""

    def guess(self, text: Sequence[int], limit: int) -> Guess:
        """Up to `limit` tokens that may follow `text`; none where its end did not occur before."""
        ...
