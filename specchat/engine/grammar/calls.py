"""Calls of tools held to a grammar in a reply that is free otherwise."""

from collections.abc import Collection

from specchat.engine.decoding.reply_rules import Allowed
from specchat.engine.grammar.masks import Masks
from specchat.engine.grammar.matcher import CompiledGrammar, GrammarMatcher
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.text.spans import ReplySpans


class CallConstraint(SteppedConstraint):
    """A `Constraint` that begins with each token `opener`, which the grammar begins with as well.

    Reasoning stays free, unless the opener is a special token: that begins a call anywhere.
    """

    def __init__(
        self, grammar: CompiledGrammar, opener: int, eos: Collection[int], spans: ReplySpans, special: bool, rows: int
    ) -> None:
        """Begin a reply.

        Args:
            eos: tokens that end the reply.
            spans: parts of the reply so far.
            special: the opener is a special token.
            rows: tokens below it have an embedding.
        """
        super().__init__()
        self._grammar, self._opener, self._spans, self._special, self._rows = grammar, opener, spans, special, rows
        self._eos = frozenset(eos)
        self._masks = Masks(self._eos, self._eos)
        self._tokens: list[int] = []
        """Tokens of the reply up to its end, or to the first one that is not allowed."""
        self._calls: list[tuple[int, GrammarMatcher]] = []
        """Places of the calls among them, and the tokens of each."""

    @property
    def error(self) -> str:
        """A sentence if a call has left the grammar, which happens where no token goes on with it; else ""."""
        return "The model has no token with which its call could go on by the schema of the tool." * self._wrong

    @property
    def _call(self) -> GrammarMatcher | None:
        """The call that the reply is in."""
        return self._calls[-1][1] if self._calls and not self._calls[-1][1].complete else None

    @property
    def _free(self) -> bool:
        return self._call is None

    def _goes_on(self, token: int) -> bool:
        call = self._call
        if token in self._eos or not (call is None or call.take(token)):
            return False
        if call is None and token == self._opener and (self._special or not self._thinking()):
            call = GrammarMatcher(self._grammar, self._eos, self._rows)
            call.write([token])
            self._calls.append((len(self._tokens), call))
        self._tokens.append(token)
        return True

    def _ends(self, _: int) -> bool:
        return self._call is None

    def _go_back(self) -> None:
        self._tokens.pop()
        if not self._calls:
            return
        start, call = self._calls[-1]
        if start == len(self._tokens):
            self._calls.pop()
        elif start + len(call) > len(self._tokens):
            call.back(1)

    def _found(self, words: int) -> Allowed:
        assert self._call is not None
        return self._masks.by(self._call, words)

    def forced(self, limit: int) -> list[int]:
        return [] if self._after or self._call is None else self._call.forced(limit)[0]

    def _thinking(self) -> bool:
        """True if the reply is reasoning here."""
        spans = self._spans.copied()
        for token in self._tokens:
            spans.push(token)
        return spans.thinking
