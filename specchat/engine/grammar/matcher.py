"""A reply's place in a compiled grammar: forward by tokens and back, whatever limits of llguidance are met.

A place allows the tokens of llguidance's mask. Where bytes are forced, that is the one token that they are usually
written with; elsewhere it is every token that goes on. Both the mask and tests of single tokens say so.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from specchat.engine.decoding.reply_rules import Allowed
from specchat.engine.grammar.source import compiled
from specchat.engine.protocol.options import Grammar


class CompiledGrammar:
    """A grammar for a model's tokens. Its matchers share a lexer, which grows with every reply up to a limit."""

    def __init__(self, grammar: Grammar, tokens: Any) -> None:
        """Compile for `tokens`, an `LLTokenizer`; raises as `compiled` does."""
        self.tokens = tokens
        self._grammar = grammar
        self._renew()

    def matcher(self) -> Any:
        """An `LLMatcher` at the start."""
        return self._first.deep_copy()

    def renewed(self) -> bool:
        """Compile anew if the lexer has met its limit, after which it rejects every token; True if so."""
        probe = self.matcher()
        probe.compute_bitmask()
        worn = bool(probe.get_error().startswith("lexer error"))
        if worn:
            self._renew()
        return worn

    def _renew(self) -> None:
        first = compiled(self._grammar, self.tokens)
        masked = first.deep_copy()
        masked.compute_bitmask()  # each mask allows the lexer so many expressions until the next one
        self._first = first if masked.is_error() else masked


class GrammarMatcher:
    """The tokens that one reply has taken of a grammar."""

    def __init__(self, grammar: CompiledGrammar, never: Collection[int], rows: int) -> None:
        """Begin; tokens of `never`, and those without an embedding, from `rows` on, are never allowed."""
        self._grammar, self._never = grammar, never
        self._rows = min(rows, grammar.tokens.vocab_size)
        self._matcher = grammar.matcher()
        self._taken: list[int] = []
        self._failure = ""
        self._forced_at: tuple[int, list[int]] = -1, []
        """A place and its forced tokens, the last that were worked out."""

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def accepting(self) -> bool:
        """True if the text may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def complete(self) -> bool:
        """True if the text can only end here."""
        return bool(self._matcher.is_stopped() and not self._matcher.is_error())

    def take(self, token: int) -> bool:
        """Move behind a token; False if it is not allowed."""
        self._failure = ""
        return self._usable(token) and (self._takes(token) or (self._renewed() and self._takes(token)))

    def write(self, tokens: Sequence[int]) -> bool:
        """Move behind text that stands already, however its tokens split it; False if it does not fit."""
        return self._consumes(tokens) or (self._renewed() and self._consumes(tokens))

    def back(self, number: int) -> None:
        """Move before the last `number` tokens."""
        if number:
            del self._taken[-number:]
            self._rewind(number)

    def fitting(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are allowed, one after the other."""
        before = len(self)
        for token in tokens:
            if not (self._usable(token) and self._takes(token)):
                break
        taken = len(self) - before
        self.back(taken)
        return taken

    def forced(self, limit: int) -> tuple[list[int], bool]:
        """Return up to `limit` tokens of text that has to come next, and True if the text ends with them."""
        tokens = list(takewhile(self._usable, self._forced()[:limit]))
        fitting = self._matcher.try_consume_tokens(tokens)
        ends = self.complete
        self._rewind(fitting)
        return tokens[:fitting], ends

    def mask(self) -> Allowed:
        """Return the allowed tokens; none but some of `never` where llguidance fails."""
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error() and self._renewed():
            mask = self._matcher.compute_bitmask()
        self._failure = self._matcher.get_error()
        if self._failure:
            self._replay()
        forced = self._forced()
        if forced and not self._usable(forced[0]):
            fits = [self._usable(token) and self._matcher.validate_tokens([token]) for token in range(8 * len(mask))]
            mask = np.packbits(np.array(fits, np.bool_), bitorder="little").tobytes()
        return np.frombuffer(mask, np.uint32)

    def failure(self) -> str:
        """llguidance's words where it failed at the last token, or fails at the next one; else ""."""
        if not self._failure:
            self.mask()
        return self._failure

    def _usable(self, token: int) -> bool:
        return token < self._rows and token not in self._never

    def _takes(self, token: int) -> bool:
        forced = self._forced()[:1]
        return token in (forced if forced and self._usable(forced[0]) else [token]) and self._consumes([token])

    def _forced(self) -> list[int]:
        """Tokens of the text that is forced here, as it is usually written."""
        if self._forced_at[0] != len(self):
            self._forced_at = len(self), [] if self._matcher.is_stopped() else self._matcher.compute_ff_tokens()
        return self._forced_at[1]

    def _consumes(self, tokens: Sequence[int]) -> bool:
        fitting = self._matcher.try_consume_tokens(list(tokens))
        self._failure = self._matcher.get_error()
        if fitting < len(tokens):
            self._rewind(fitting)
            return False
        if self._forced_at[0] > len(self):
            self._forced_at = -1, []
        self._taken += tokens
        return True

    def _rewind(self, number: int) -> None:
        """Take the last `number` tokens back from the matcher, which stays in an error once it is in one."""
        if self._matcher.is_error() or (number and not self._matcher.rollback(number)):
            self._replay()

    def _renewed(self) -> bool:
        """True if the lexer had met its limit and is a new one, so that another try may succeed."""
        renewed = self._grammar.renewed()
        if renewed:
            self._replay()
        return renewed

    def _replay(self) -> None:
        self._matcher, self._forced_at = self._grammar.matcher(), (-1, [])
        self._matcher.try_consume_tokens(self._taken)
