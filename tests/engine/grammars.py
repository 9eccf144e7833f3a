"""Grammars for tests: some by hand, random schemas, and how a reply is held against them."""

import json
import random
from typing import Any

import llguidance
from jsonschema import Draft202012Validator

from specchat.engine.errors import EngineError
from specchat.engine.grammar.compiler import Grammars
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Grammar
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
        "happy": {"type": "boolean"},
    },
    "required": ["name", "age", "tags", "happy"],
    "additionalProperties": False,
}
CALC = 'start: sum\nsum: product | sum "+" product\nproduct: DIGIT | product "*" DIGIT\nDIGIT: /[0-9]/\n'
GRAMMARS = {
    "schema": Grammar("json_schema", json.dumps(PERSON)),
    "any object": Grammar("json_object"),
    "regex": Grammar("regex", r"(abc|x)+[ ]?(The cat sat\. ){2}[a-f]{3,9}!"),
    "lark": Grammar("lark", CALC),
}


def fits(session: Session, grammar: Grammar, last: Finished, begun: str = "") -> bool:
    """True if a reply is the beginning of what the grammar allows, and whole if it ended by itself.

    `begun` is the beginning that it was given.
    """
    tokens = Grammars(session.tokenizer).tokens(session.eos)
    source = {
        "json_schema": lambda: llguidance.LLMatcher.grammar_from_json_schema(grammar.text),
        "json_object": lambda: llguidance.LLMatcher.grammar_from_json_schema('{"type": "object"}'),
        "regex": lambda: llguidance.LLMatcher.grammar_from_regex(grammar.text),
        "lark": lambda: llguidance.LLMatcher.grammar_from_lark(grammar.text),
    }[grammar.kind]()
    matcher = llguidance.LLMatcher(tokens, source)
    assert not matcher.get_error()
    answer = [token for token in last.token_ids if token not in session.eos]
    assert matcher.try_consume_tokens(tokens.tokenize_str(begun)) == len(tokens.tokenize_str(begun))
    if matcher.try_consume_tokens(answer) < len(answer):
        return False
    if last.reason != "stop":
        return last.reason in ("length", "context")
    if grammar.kind in ("json_schema", "json_object"):
        Draft202012Validator(json.loads(grammar.text or "{}")).validate(json.loads(last.text))
    return bool(matcher.is_accepting()) and last.token_ids[-1] in session.eos


def ending(session: Session, wanted: Generate) -> tuple[str, str]:
    """The text that a reply shows, and how it ends."""
    text = ""
    try:
        for event in session.generate(wanted):
            text += "".join(piece.text for piece in event.pieces) if isinstance(event, Step) else ""
    except EngineError as error:
        return text, error.message
    return text, event.reason if isinstance(event, Finished) else ""


def random_schema(seed: int) -> dict[str, Any]:
    """A schema that can be met, whose values are short."""
    return _value(random.Random(seed), 3)


def _value(draw: random.Random, depth: int) -> dict[str, Any]:
    leaves = ("string", "pattern", "integer", "number", "boolean", "null", "enum", "const")
    kind = draw.choice([*leaves, *(("object", "array", "anyOf", "object") if depth else ())])
    match kind:
        case "string":
            return {"type": "string", "minLength": draw.randrange(3), "maxLength": draw.randrange(3, 9)}
        case "pattern":
            return {"type": "string", "pattern": draw.choice(["^[a-c]{2,4}$", "^(ab|c)+d$", "^[0-9]{2}-[0-9]{2}$"])}
        case "integer":
            least = draw.randrange(-50, 50)
            return {"type": "integer", "minimum": least, "maximum": least + draw.randrange(200)}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": draw.randrange(1, 99)}
        case "enum":
            return {"enum": draw.sample(["red", "blue", 7, None, True, "a b", "ä\n"], draw.randrange(1, 5))}
        case "const":
            return {"const": draw.choice(["fixed", 12, False, [1, 2]])}
        case "array":
            least = draw.randrange(3)
            items = _value(draw, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + draw.randrange(2)}
        case "anyOf":
            return {"anyOf": [_value(draw, depth - 1) for _ in range(draw.randrange(2, 4))]}
        case "object":
            names = draw.sample(["a", "b", "name", "long name", "ü", "x_1"], draw.randrange(1, 4))
            properties = {name: _value(draw, depth - 1) for name in names}
            required = [name for name in names if draw.random() < 0.7]
            found = {"type": "object", "properties": properties, "required": required}
            return found | {"additionalProperties": False}
        case _:
            return {"type": kind}
