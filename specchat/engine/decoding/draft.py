"""A draft, as a drafter hands it to the step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from specchat.engine.decoding.sampler import History, Sampler


@dataclass
class Draft:
    """A chain of proposed tokens.

    `q` is the distribution float64 [len(tokens), vocab] that each token was drawn from, None when the draft is
    deterministic; only the ratio test reads it. `confidence` is the probability of each token, empty where the drafter
    has none to tell; it is shown, nothing depends on it.
    """

    tokens: list[int] = field(default_factory=list)
    q: Tensor | None = None
    confidence: list[float] = field(default_factory=list)


class Drafter(Protocol):
    """One family of drafting. Positions and tokens are those of the whole sequence, prompt included."""

    name: str

    def begin(self, prompt: Sequence[int]) -> None:
        """A reply to `prompt` starts: forget what belongs to another text."""
        ...

    def forget(self) -> None:
        """Be as when just loaded: nothing in a cache, nothing learnt from earlier replies."""
        ...

    def propose(self, committed: Sequence[int], limit: int, sampler: Sampler, history: History, ratio: bool) -> Draft:
        """Up to `limit` tokens that may follow `committed`.

        The last committed token is pending: no cache holds it yet. `history` already counts the committed tokens and is
        returned as it was. With `ratio` the draft keeps `q`.
        """
        ...

    def observe(self, committed: Sequence[int]) -> None:
        """The last draft was judged: `committed` is the text now, its last token pending."""
        ...
