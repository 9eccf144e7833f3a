"""The rules by which a reply's tokens are chosen."""

from collections.abc import Collection
from typing import NamedTuple

from specchat.engine.decoding.constraint import Constraint
from specchat.engine.protocol.options import Sampling


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
