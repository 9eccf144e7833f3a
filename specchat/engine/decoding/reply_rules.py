"""The rules by which a reply's tokens are chosen. Free of the grammars behind constraints."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.engine.protocol.options import Sampling

Allowed = NDArray[np.uint32]
"""A set of tokens, 32 a word, the lowest first."""


class Constraint(Protocol):
    """The tokens that may come next, after the text and after drafted tokens.

    It stands at a place of the text, which `push` and `pop` move. After a token that is not allowed, and after the end
    of a reply, all tokens are.
    """

    def push(self, token: int) -> None:
        """Go on after `token`."""
        ...

    def pop(self) -> None:
        """Go back before the last token."""
        ...

    def allowed(self, columns: int) -> Allowed | None:
        """Return the allowed ones of the first `columns` tokens, ceil(columns / 32) words; None if all are.

        There may be none.
        """
        ...

    def look_ahead(self, tokens: Sequence[int], columns: int, done: Callable[[], bool]) -> None:
        """Work out the allowed tokens here and after each of `tokens`, for `allowed` to know, until it is `done`."""
        ...

    def forced(self, limit: int) -> list[int]:
        """Return up to `limit` tokens that most likely come next, as no other text is allowed."""
        ...

    def prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are allowed, up to the end of the reply."""
        ...


class ReplyRules(NamedTuple):
    """Rules of one reply.

    Attributes:
        eos: tokens after which nothing is added.
        constraint: on its tokens; it stands at the end of the prompt.
        top: has steps tell log-probabilities, and those of as many of the likeliest tokens.
        begun: the last tokens of the prompt that are a reply's, which goes on: penalties count them as its tokens.
    """

    sampling: Sampling
    eos: Collection[int] = ()
    constraint: Constraint | None = None
    top: int | None = None
    begun: int = 0
