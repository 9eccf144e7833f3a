"""Replies to compare, as a server or a pair of this machine writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specchat.engine.protocol.options import Message, Sampling


@dataclass(frozen=True)
class TokenOption:
    """A token that could follow; its text as bytes, since a token may end within a character."""

    text: bytes
    logprob: float


@dataclass(frozen=True)
class TokenOptions:
    """The likeliest tokens at a place of a greedy reply.

    Attributes:
        index: tokens of the reply before it.
        start: bytes of the reply before it.
        options: with the one that was written first.
    """

    index: int
    start: int
    options: tuple[TokenOption, ...]


class ReplyWriter(Protocol):
    """Writes replies to be compared."""

    @property
    def name(self) -> str:
        """The pair's id."""
        ...

    @property
    def place(self) -> str:
        """The program and the model, in words."""
        ...

    @property
    def drafts(self) -> bool | None:
        """True if it drafts, None if that is not known."""
        ...

    @property
    def keeps_text(self) -> str:
        """The program if its sampled text with a seed does not depend on drafting; else empty."""
        ...

    def write(self, chat: Sequence[Message], sampling: Sampling, tokens: int) -> str:
        """A reply of at most so many tokens.

        Raises:
            EngineError: it fails, or the chat does not fit its context.
        """
        ...

    def options(self, chat: Sequence[Message], tokens: int, at: int) -> TokenOptions | None:
        """The token of the greedy reply that covers its byte `at`, or ends it there; None if it is not told."""
        ...
