"""Grammars compiled for a model's tokens, by llguidance, and kept for further replies."""

import json
from collections import OrderedDict
from collections.abc import Set
from typing import Any

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.grammar.answer import AnswerConstraint
from specchat.engine.grammar.vocabulary import vocabulary
from specchat.engine.model.tokenizer import Tokenizer
from specchat.engine.options import Grammar
from specchat.engine.reply_spans import ReplySpans
from specchat.engine.requests import Generate

MAX_CHARACTERS = 256 << 10
"""A longer grammar is refused: one of this length takes llguidance half a second at most."""
KEPT = 32
"""Compiled grammars that are kept."""
KINDS = {"json_schema": "JSON schema", "json_object": "JSON grammar", "regex": "regex", "lark": "Lark grammar"}
"""The kinds in words."""


class Grammars:
    """Compiles grammars for the tokens of one model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabularies: dict[Set[int], Any] = {}
        """llguidance's tokenizer, by the tokens that end a reply."""
        self._compiled: OrderedDict[tuple[Grammar, Set[int]], Any] = OrderedDict()

    def tokens(self, eos: Set[int]) -> Any:
        """The `LLTokenizer`; raises as `vocabulary` does."""
        if eos not in self._vocabularies:
            self._vocabularies[eos] = vocabulary(self._tokenizer, eos)
        return self._vocabularies[eos]

    def constraint(self, request: Generate, spans: ReplySpans, eos: frozenset[int]) -> AnswerConstraint | None:
        """The constraint of a reply that stands at `spans`; None without a grammar.

        Raises:
            EngineError: "request": as `matcher`, or the beginning of the reply does not fit the grammar.
        """
        if request.grammar is None:
            return None
        matcher, before = self.matcher(request.grammar, eos), request.beginning
        written = "".join(text for text, reasoning in before.spans if not reasoning)
        written = written.lstrip("\n") if before.reasoning else written
        made = AnswerConstraint(matcher, self.tokens(eos), eos, spans, self._tokenizer.rows, written)
        if not made.fits:
            raise EngineError("request", f"The beginning of the reply does not fit the {KINDS[request.grammar.kind]}.")
        return made

    def matcher(self, grammar: Grammar, eos: frozenset[int]) -> Any:
        """An `LLMatcher` at the start of a grammar; tokens of `eos` end a reply.

        Raises:
            EngineError: "request": the grammar is too large, or none that llguidance reads.
        """
        key = (grammar, eos)
        if key not in self._compiled:
            self._compiled[key] = self._compile(grammar, self.tokens(eos))
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return self._compiled[key].deep_copy()

    def _compile(self, grammar: Grammar, tokens: Any) -> Any:
        from llguidance import LLMatcher, LLParserLimits

        name = KINDS[grammar.kind]
        if len(grammar.text) > MAX_CHARACTERS:
            raise EngineError(
                "request", f"The {name} has {len(grammar.text):,} characters; at most {MAX_CHARACTERS:,} are taken."
            )
        limits = LLParserLimits(verbose_errors=False)
        matcher = LLMatcher(tokens, _source(grammar), log_level=0, limits=limits)
        if why := matcher.get_error():
            raise EngineError("request", f"The {name} cannot be used: {one_line(why, 300).rstrip('.')}.")
        return matcher


def _source(grammar: Grammar) -> str:
    """The grammar in llguidance's own form.

    Raises:
        EngineError: "request": a JSON schema that is no JSON.
    """
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.text)
    try:
        schema = json.loads(grammar.text) if grammar.kind == "json_schema" else {"type": "object"}
        if not isinstance(schema, dict | bool):
            raise ValueError("it is no object")
        # One line, as most models write it: small models fill free whitespace without end, and less would be forced.
        return LLMatcher.grammar_from_json_schema(
            json.dumps(schema),
            overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
        )
    except RecursionError:
        raise EngineError("request", "The JSON schema cannot be used: it is nested too deeply.") from None
    except ValueError as error:
        raise EngineError("request", f"The JSON schema cannot be used: {one_line(str(error), 200)}.") from None
