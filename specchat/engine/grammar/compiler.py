"""Grammars compiled for a model's tokens, and kept for further replies."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.grammar.answer import AnswerConstraint
from specchat.engine.grammar.calls import CallConstraint
from specchat.engine.grammar.matcher import CompiledGrammar
from specchat.engine.grammar.source import KINDS, HeldTo
from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Generate
from specchat.engine.text.spans import ReplySpans
from specchat.engine.text.tokenizer import Tokenizer

MAX_KEPT = 32
"""Compiled grammars that are kept."""


HeldReply = AnswerConstraint | CallConstraint


class Grammars:
    """Compiles grammars for the tokens of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabularies: dict[frozenset[int], Any] = {}
        """llguidance's tokenizer, by the tokens that end a reply."""
        self._compiled: OrderedDict[tuple[Grammar, frozenset[int]], CompiledGrammar] = OrderedDict()

    def constraint(
        self, request: Generate, held: HeldTo | None, spans: ReplySpans, eos: frozenset[int]
    ) -> HeldReply | None:
        """The constraint of a reply that stands at `spans`; None without a grammar. Tokens of `eos` end the reply.

        Raises:
            EngineError: "request": as `vocabulary` and `compiled`, or the reply's beginning does not fit the grammar.
        """
        if held is None:
            return None
        before, rows = request.beginning, self._tokenizer.rows
        try:
            grammar = self._grammar(held.grammar, eos)
        except EngineError as error:
            if held.calls:
                words = "The schemas of the tools cannot be held to. Mend them, or leave out strict and required."
                raise EngineError("request", f"{words} {error.message}") from None
            raise
        if held.opener is not None:
            return CallConstraint(grammar, held.opener, eos, spans, held.special, rows)
        written = "".join(text for text, reasoning in before.spans if not reasoning)
        written = written.lstrip("\n") if before.reasoning else written
        made = AnswerConstraint(grammar, eos, spans, rows, written, held.whole)
        if not made.fits:
            raise EngineError("request", f"The beginning of the reply does not fit the {KINDS[held.grammar.kind]}.")
        return made

    def tokens(self, eos: frozenset[int]) -> Any:
        """The `LLTokenizer`; raises as `vocabulary` does."""
        if eos not in self._vocabularies:
            self._vocabularies[eos] = vocabulary(self._tokenizer, eos)
        return self._vocabularies[eos]

    def _grammar(self, grammar: Grammar, eos: frozenset[int]) -> CompiledGrammar:
        key = (grammar, eos)
        if key not in self._compiled:
            self._compiled[key] = CompiledGrammar(grammar, self.tokens(eos))
            if len(self._compiled) > MAX_KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return self._compiled[key]


@runtime_checkable
class Pieces(Protocol):
    """A tokenizer's backend that has no tokenizer.json, but the bytes of each token."""

    @property
    def pieces(self) -> Sequence[bytes]: ...


@runtime_checkable
class Described(Protocol):
    """A tokenizer's backend that writes its tokenizer.json."""

    def to_str(self) -> str: ...


class _Wrapped:
    """The interface that llguidance asks for of tokens without a tokenizer.json."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes], eos: int) -> None:
        self._backend = tokenizer.backend
        self.tokens = list(tokens)
        self.eos_token_id = eos
        self.special_token_ids = [number for number, token in tokenizer.added.items() if token.special]

    def __call__(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids


def vocabulary(tokenizer: Tokenizer, eos: Collection[int]) -> Any:
    """An `LLTokenizer` with the tokenizer's tokens; those of `eos` end a reply.

    Raises:
        EngineError: "request": no token ends a reply, or llguidance cannot read these tokens.
    """
    from llguidance import LLTokenizer, TokenizerWrapper

    ends, backend = sorted(eos), tokenizer.backend
    if not ends:
        raise EngineError("request", "No token of this model ends a reply, so no grammar can hold its answers.")
    size = 1 + max(*backend.get_vocab().values(), ends[-1])
    try:
        if isinstance(backend, Pieces):
            wrapped = TokenizerWrapper(_Wrapped(tokenizer, backend.pieces, ends[0]))
            return LLTokenizer(wrapped, n_vocab=max(size, len(backend.pieces)), eos_token=ends)
        if isinstance(backend, Described):
            return LLTokenizer(backend.to_str(), n_vocab=size, eos_token=ends)
        why = "it has no description"
    except Exception as error:
        why = one_line(str(error), 200)
    raise EngineError(
        "request", f"{tokenizer.file}: llguidance cannot read this tokenizer ({why}), so no grammar can hold answers."
    )
