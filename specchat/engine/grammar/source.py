"""Grammars in llguidance's own form, and the limits that they are held to. Free of torch, for clients too."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Grammar
from specchat.engine.tool_calls.rules import json_body

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_CHARACTERS = 256 << 10
"""A longer grammar is refused: one of this length takes llguidance half a second at most."""
MAX_LEXER_FUEL = 20_000_000
"""Limit of a mask's work, by llguidance's count of it: seconds."""
MAX_LEXER_STATES = 100_000
"""Limit of a grammar's lexer: 150 MB."""
KINDS = {"json_schema": "JSON schema", "json_object": "JSON grammar", "regex": "regex", "lark": "Lark grammar"}
"""The kinds in words."""


@dataclass(frozen=True)
class HeldTo:
    """The grammar of a reply's answer.

    Attributes:
        calls: it is made of the schemas of tools.
        whole: it is that of the whole reply, reasoning and marks included.
        opener: the token with which it begins, wherever the reply has that; None where it begins with the answer.
        special: the opener is a special token.
    """

    grammar: Grammar
    calls: bool = False
    whole: bool = False
    opener: int | None = None
    special: bool = False


def compiled(grammar: Grammar, tokens: "LLTokenizer") -> "LLMatcher":
    """A matcher at the start of a grammar, for a model's tokens.

    Raises:
        EngineError: "request": the grammar is too large, or none that llguidance reads.
    """
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(step_lexer_fuel=MAX_LEXER_FUEL, max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(tokens, _source(grammar), log_level=0, limits=limits)
    _refuse(grammar, matcher.get_error())
    return matcher


def check(grammar: Grammar) -> None:
    """Raises EngineError, "request", for a grammar that no model can be held to."""
    from llguidance import LLMatcher, LLParserLimits

    source = _source(grammar)
    _refuse(grammar, LLMatcher.validate_grammar(source, limits=LLParserLimits(verbose_errors=False)))


def _refuse(grammar: Grammar, why: str) -> None:
    if why and not why.startswith("WARNING"):
        raise EngineError("request", f"The {KINDS[grammar.kind]} cannot be used: {one_line(why, 300).rstrip('.')}.")


def rule_body(grammar: Grammar) -> str:
    """The grammar as the body of a rule in a Lark grammar."""
    if grammar.kind not in ("json_schema", "json_object"):
        return f"%lark {{\n{_lark(grammar)}\n}}"
    schema = json.loads(grammar.text) if grammar.text else {"type": "object"}
    return json_body(schema if isinstance(schema, dict) else {})


def _lark(grammar: Grammar) -> str:
    """The Lark grammar of a regular expression, or of Lark itself."""
    from llguidance import LLMatcher

    if grammar.kind == "lark":
        return grammar.text
    made: str = json.loads(LLMatcher.grammar_from_regex(grammar.text))["grammars"][0]["lark_grammar"]
    return made


def _source(grammar: Grammar) -> str:
    """The grammar for llguidance; raises EngineError for one that is too long, or a JSON schema that is no JSON."""
    from llguidance import LLMatcher

    name = KINDS[grammar.kind]
    if len(grammar.text) > MAX_CHARACTERS:
        words = f"The {name} has {len(grammar.text):,} characters; at most {MAX_CHARACTERS:,} are taken."
        raise EngineError("request", words)
    if grammar.kind in ("regex", "lark"):
        return LLMatcher.grammar_from_lark(_lark(grammar))
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
        raise EngineError("request", f"The {name} cannot be used: it is nested too deeply.") from None
    except ValueError as error:
        raise EngineError("request", f"The {name} cannot be used: {one_line(str(error), 200)}.") from None
