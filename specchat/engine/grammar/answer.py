"""The place of a reply in its grammar: after reasoning, within the answer, at its end."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from specchat.clean import one_line
from specchat.engine.decoding.reply_rules import Allowed
from specchat.engine.grammar.masks import Masks
from specchat.engine.grammar.matcher import CompiledGrammar, GrammarMatcher
from specchat.engine.grammar.stepped import SteppedConstraint
from specchat.engine.text.spans import ReplySpans

MAX_GAP = 4
"""Tokens of empty lines between reasoning and answer; no text shows them."""
MAX_UNDONE = 256
"""Pushes that can be undone: more than a step drafts."""


class _Undo(NamedTuple):
    """A place of the reply: its parts up to the answer, None within that; empty lines since; tokens of the answer."""

    spans: ReplySpans | None
    gap: int
    taken: int


class AnswerConstraint(SteppedConstraint):
    """A `Constraint` that holds the answer of one reply to a grammar.

    Reasoning is free, but cannot end the reply. The grammar begins with the answer: at once, after the mark that ends
    reasoning, or with the channel of the answer. The reply ends only where the grammar may.
    """

    def __init__(
        self,
        grammar: CompiledGrammar,
        eos: Collection[int],
        spans: ReplySpans,
        rows: int,
        written: str = "",
        whole: bool = False,
    ) -> None:
        """Begin a reply.

        Args:
            eos: tokens that end the reply.
            spans: parts of the reply so far.
            rows: tokens below it have an embedding.
            written: the answer so far.
            whole: the grammar is that of the reply, reasoning and marks included.
        """
        super().__init__()
        self._tokens = tokens = grammar.tokens
        self._eos = frozenset(eos)
        self._never = self._eos if whole else self._eos | spans.marks
        """Tokens that no grammar allows: marks are none of the answer, and only its end may be followed by an end."""
        self._masks = Masks(self._eos, self._never)
        self._matcher = GrammarMatcher(grammar, self._never, rows)
        begun = whole or bool(written) or spans.place == "answer"
        self.fits = not begun or self._matcher.write(tokens.tokenize_str(written))
        """False if `written` does not fit the grammar."""
        self._place = _Undo(None if begun else spans, 0, len(self._matcher))
        self._before: list[_Undo] = []
        """Places before the last tokens."""
        lines = (tokens.tokenize_str("\n" * n) for n in range(1, MAX_GAP))
        self._newlines = frozenset(ids[0] for ids in lines if len(ids) == 1)

    @property
    def error(self) -> str:
        """A sentence if the reply has left the grammar, which happens where no token goes on with it; else ""."""
        if not self._wrong:
            return ""
        why = self._matcher.failure().partition("<")[0].partition(";")[0]
        if why and not why.startswith("NoExtension"):
            return f"The grammar became too complex in this reply: {one_line(why, 200).rstrip('. ')}."
        return "The model has no token with which the answer could go on by the grammar."

    def _goes_on(self, token: int) -> bool:
        found = None if token in self._eos else self._behind(token)
        if found is None:
            return False
        self._before.append(self._place)
        if len(self._before) > 2 * MAX_UNDONE:
            del self._before[:-MAX_UNDONE]
        self._place = _Undo(*found, len(self._matcher))
        return True

    def _go_back(self) -> None:
        self._place = self._before.pop()
        self._matcher.back(len(self._matcher) - self._place.taken)

    def forced(self, limit: int) -> list[int]:
        spans = self._place.spans
        if self._after or (spans is not None and (spans.place != "start" or spans.reasoned or spans.openings)):
            return []
        tokens, ends = self._matcher.forced(limit)
        return [*tokens, *([min(self._eos)] if ends else [])][:limit]

    def prefix(self, tokens: Sequence[int]) -> int:
        if self._place.spans is None and not self._after and self._eos.isdisjoint(tokens):
            return self._matcher.fitting(tokens)
        return super().prefix(tokens)

    def _behind(self, token: int) -> tuple[ReplySpans | None, int] | None:
        """Return parts and empty lines behind `token`; None if it is not allowed, and then the grammar stays."""
        spans, gap, _ = self._place
        if spans is None:
            return (None, gap) if self._matcher.take(token) else None
        if spans.place == "start" and token not in spans.openings:
            if self._matcher.take(token):
                return None, gap
            return (spans, gap + 1) if token in self._newlines and spans.reasoned and gap < MAX_GAP else None
        if spans.place == "between" and token not in spans.openings:
            return None
        after = spans.copied()
        begun = "".join(text for text, reasoning in after.push(token) if not reasoning).lstrip("\n")
        if after.place != "answer":
            return after, gap
        return (None, gap) if not begun or self._matcher.write(self._tokens.tokenize_str(begun)) else None

    def _ends(self, token: int) -> bool:
        answering = self._place.spans is None or self._place.spans.place == "start"
        return token in self._eos and answering and self._matcher.accepting

    def _found(self, words: int) -> Allowed:
        masks, (spans, gap, _) = self._masks, self._place
        if spans is None:
            return masks.by(self._matcher, words)
        if spans.place == "start":
            mask = masks.by(self._matcher, words) | masks.of(spans.openings, words)
            return mask | masks.of(self._newlines, words) if spans.reasoned and gap < MAX_GAP else mask
        if spans.place == "between":
            return masks.of(spans.openings, words)
        return masks.of(self._eos, words, inverse=True)
