"""Calls of tools held to a grammar in a reply that is free otherwise."""

from collections.abc import Collection
from typing import Any

from specchat.engine.decoding.constraint import Allowed
from specchat.engine.grammar.masks import Masks
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.reply_spans import ReplySpans


class CallConstraint(SteppedConstraint):
    """A `Constraint` that begins with each token `opener`, which the grammar begins with as well.

    Reasoning stays free, unless the opener is a special token: that begins a call anywhere.
    """

    def __init__(
        self, matcher: Any, opener: int, eos: Collection[int], spans: ReplySpans, special: bool, rows: int
    ) -> None:
        """Begin a reply.

        Args:
            matcher: an `LLMatcher` at the start of the grammar.
            eos: tokens that end the reply.
            spans: parts of the reply so far.
            special: the opener is a special token.
            rows: tokens below it have an embedding.
        """
        super().__init__()
        self._first, self._opener, self._spans, self._special, self._rows = matcher, opener, spans, special, rows
        self._eos = frozenset(eos)
        self._masks = Masks(self._eos, self._eos)
        self._tokens: list[int] = []
        """Tokens of the reply up to its end, or to the first one that is not allowed."""
        self._starts: list[int] = []
        """Places of the calls among them."""
        self._ended: list[int] = []
        """Places after calls that are complete."""
        self._matcher: Any = None
        """In a call: after its tokens so far."""

    @property
    def error(self) -> str:
        """A sentence if a call has left the grammar, which happens where no token goes on with it; else ""."""
        return "The model has no token with which its call could go on by the schema of the tool." * self._wrong

    @property
    def _inside(self) -> bool:
        """True within a call."""
        return len(self._starts) > len(self._ended)

    @property
    def _free(self) -> bool:
        return not self._inside

    def _goes_on(self, token: int) -> bool:
        stops = not self._takes(token) if self._inside else token in self._eos
        if stops:
            return False
        if not self._inside and token == self._opener and (self._special or not self._thinking()):
            self._starts.append(len(self._tokens))
            self._matcher = self._first.deep_copy()
            self._takes(token)
        self._tokens.append(token)
        if self._inside and self._matcher.is_stopped():
            self._ended.append(len(self._tokens))
        return True

    def _ends(self, _: int) -> bool:
        return not self._inside

    def _go_back(self) -> None:
        if self._ended and self._ended[-1] == len(self._tokens):
            self._ended.pop()
            self._put_back()
        self._tokens.pop()
        if self._starts and self._starts[-1] == len(self._tokens):
            self._starts.pop()
        elif self._inside and not self._matcher.rollback(1):
            self._put_back()

    def _found(self, words: int) -> Allowed:
        return self._masks.by(self._matcher, words)

    def forced(self, limit: int) -> list[int]:
        if self._after or not self._inside:
            return []
        tokens = [token for token in self._matcher.compute_ff_tokens() if token < self._rows][:limit]
        return tokens[: self._matcher.validate_tokens(tokens)]

    def _takes(self, token: int) -> bool:
        """Move the grammar behind a token, if that fits."""
        if token in self._eos or token >= self._rows:
            return False
        if self._matcher.try_consume_tokens([token]):
            return True
        if self._matcher.is_error():
            self._put_back()
        return False

    def _put_back(self) -> None:
        """Have a matcher of the call's tokens: one that has stopped or failed goes back no more."""
        self._matcher = self._first.deep_copy()
        self._matcher.try_consume_tokens(self._tokens[self._starts[-1] :])

    def _thinking(self) -> bool:
        """True if the reply is reasoning here."""
        spans = self._spans.copied()
        for token in self._tokens:
            spans.push(token)
        return spans.thinking
