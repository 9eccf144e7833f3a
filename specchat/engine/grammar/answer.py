"""The place of a reply in its grammar: after reasoning, within the answer, at its end."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from specchat.clean import one_line
from specchat.engine.decoding.constraint import Allowed
from specchat.engine.grammar.masks import Masks
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.reply_spans import ReplySpans

MAX_GAP = 4
"""Tokens of empty lines between reasoning and answer; no text shows them."""
MAX_UNDONE = 256
"""Pushes that can be undone: more than a step drafts."""


class _Undo(NamedTuple):
    """The state before a token; `consumed` is the matcher's number of tokens."""

    spans: ReplySpans | None
    gap: int
    consumed: int


class AnswerConstraint(SteppedConstraint):
    """A `Constraint` that holds the answer of one reply to a grammar.

    Reasoning is free, but cannot end the reply. The grammar begins with the answer: at once, after the mark that ends
    reasoning, or with the channel of the answer. The reply ends only where the grammar may.
    """

    def __init__(
        self,
        matcher: Any,
        tokens: Any,
        eos: Collection[int],
        spans: ReplySpans,
        rows: int,
        written: str = "",
        whole: bool = False,
    ) -> None:
        """Begin a reply.

        Args:
            matcher: an `LLMatcher` at the start of the grammar.
            tokens: its `LLTokenizer`.
            eos: tokens that end the reply.
            spans: parts of the reply so far.
            rows: tokens below it have an embedding.
            written: the answer so far.
            whole: the grammar is that of the reply, reasoning and marks included.
        """
        super().__init__()
        self._matcher, self._first, self._tokens, self._rows = matcher, matcher.deep_copy(), tokens, rows
        self._eos = frozenset(eos)
        self._never = self._eos if whole else self._eos | spans.marks
        """Tokens that no grammar allows: marks are none of the answer, and only its end may be followed by an end."""
        self._masks = Masks(self._eos, self._never)
        self._spans: ReplySpans | None = spans
        """Parts of the reply; None once the answer has begun."""
        self._consumed: list[int] = []
        """Tokens of the answer."""
        self._gap = 0
        self._undo: list[_Undo] = []
        self._trouble = ""
        """llguidance's words on the last token that did not fit, if it failed there."""
        lines = (tokens.tokenize_str("\n" * n) for n in range(1, MAX_GAP))
        self._newlines = frozenset(ids[0] for ids in lines if len(ids) == 1)
        self.fits = True
        """False if `written` does not fit the grammar."""
        if whole or written or spans.place == "answer":
            self._spans = None
            self.fits = self._consume(tokens.tokenize_str(written))

    @property
    def error(self) -> str:
        """A sentence if the reply has left the grammar, which happens where no token goes on with it; else ""."""
        if not self._wrong:
            return ""
        why = self._trouble.partition("<")[0].partition(";")[0]
        if why and not why.startswith("NoExtension"):
            return f"The grammar became too complex in this reply: {one_line(why, 200).rstrip('. ')}."
        return "The model has no token with which the answer could go on by the grammar."

    def _goes_on(self, token: int) -> bool:
        before = _Undo(self._spans, self._gap, len(self._consumed))
        if not self._moved(token):
            return False
        self._undo.append(before)
        if len(self._undo) > 2 * MAX_UNDONE:
            del self._undo[:-MAX_UNDONE]
        return True

    def _go_back(self) -> None:
        self._spans, self._gap, consumed = self._undo.pop()
        undone = len(self._consumed) - consumed
        del self._consumed[consumed:]
        self._back(undone)

    def forced(self, limit: int) -> list[int]:
        if self._after or (self._spans is not None and (self._spans.place != "start" or self._others())):
            return []
        matcher = self._matcher
        tokens = [token for token in matcher.compute_ff_tokens() if token < self._rows][:limit]
        fitting = matcher.try_consume_tokens(tokens)
        ends = matcher.is_stopped() and not matcher.is_error()
        self._back(fitting)
        return [*tokens[:fitting], *([min(self._eos)] if ends else [])][:limit]

    def prefix(self, tokens: Sequence[int]) -> int:
        if self._spans is None and not self._after and self._plain(tokens):
            fitting = int(self._matcher.validate_tokens(list(tokens)))
            if self._matcher.is_error():
                self._back(0)
            return fitting
        return super().prefix(tokens)

    def _plain(self, tokens: Sequence[int]) -> bool:
        """True if the grammar alone says whether `tokens` are allowed."""
        return self._never.isdisjoint(tokens) and max(tokens, default=0) < self._tokens.vocab_size

    def _moved(self, token: int) -> bool:
        """Move behind `token`; False if it is not allowed, or ends the reply."""
        spans = self._spans
        if token in self._eos:
            return False
        if spans is None:
            return self._consume([token])
        if spans.place == "start" and token not in spans.openings:
            if self._consume([token]):
                self._spans = None
                return True
            self._gap += 1
            return token in self._newlines and spans.reasoned and self._gap <= MAX_GAP
        if spans.place == "between" and token not in spans.openings:
            return False
        self._spans = after = spans.copied()
        begun = "".join(text for text, reasoning in after.push(token) if not reasoning).lstrip("\n")
        if after.place == "answer":
            self._spans = None
            return self._consume(self._tokens.tokenize_str(begun)) if begun else True
        return True

    def _ends(self, token: int) -> bool:
        answering = self._spans is None or self._spans.place == "start"
        return token in self._eos and answering and bool(self._matcher.is_accepting())

    def _others(self) -> bool:
        """True if something else than the answer may come next, at the start of a part."""
        assert self._spans is not None
        return self._spans.reasoned or bool(self._spans.openings)

    def _consume(self, tokens: Sequence[int]) -> bool:
        """Move the grammar behind tokens of the answer, if they fit."""
        self._trouble = ""
        if tokens and not self._plain(tokens):
            return False
        fitting = self._matcher.try_consume_tokens(list(tokens))
        if fitting < len(tokens):
            self._trouble = self._matcher.get_error()
            self._back(fitting)
            return False
        self._consumed += tokens
        return True

    def _back(self, undone: int) -> None:
        """Take the last tokens back from the matcher."""
        # After an error, a limit for one, a matcher stays in it.
        if self._matcher.is_error() or (undone and not self._matcher.rollback(undone)):
            self._matcher = self._first.deep_copy()
            self._matcher.try_consume_tokens(self._consumed)

    def _found(self, words: int) -> Allowed:
        spans, masks = self._spans, self._masks
        if spans is None:
            return masks.by(self._matcher, words)
        if spans.place == "start":
            mask = masks.by(self._matcher, words) | masks.of(spans.openings, words)
            return mask | masks.of(self._newlines, words) if spans.reasoned and self._gap < MAX_GAP else mask
        if spans.place == "between":
            return masks.of(spans.openings, words)
        return masks.of(self._eos, words, inverse=True)
