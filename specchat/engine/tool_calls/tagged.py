"""Arguments that stand between tags as they are: their types follow from the schema."""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from specchat.engine.tool_calls.rules import ANY, Rules
from specchat.engine.tool_calls.schemas import (
    Schema,
    alternatives,
    fixed_values,
    length_of,
    patterns_of,
    type_name,
    types_of,
)

SHARED = ("$defs", "definitions")
"""Keys of a schema that references lead to, from its root."""
_PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""Escapes, classes and characters of a regular expression."""


def tagged_value(text: str, schema: Any, root: Schema) -> Any:
    """The value of a text between tags, by the JSON `schema` of its argument: text where that allows text."""
    found = alternatives(schema, root)
    types = frozenset[str]().union(*map(types_of, found))
    if any(map(_takes_any_text, found)) or any(text in (fixed_values(one) or ()) for one in found):
        return None if text == "null" and "null" in types else text
    value = _value(text, literal=bool(types))
    if isinstance(value, float) and value.is_integer() and "integer" in types and "number" not in types:
        return int(value)
    return text if "string" in types and type_name(value) not in types else value


def _takes_any_text(alternative: Schema) -> bool:
    return "string" in types_of(alternative) and fixed_values(alternative) is None


def _value(text: str, literal: bool) -> Any:
    """JSON or a Python `literal`, as some templates write lists and objects; else the text."""
    for read in (json.loads, lambda text: json.loads(json.dumps(ast.literal_eval(text.strip()))))[: 1 + literal]:
        try:
            value = read(text)
            json.dumps(value, allow_nan=False)
            return value
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def tagged_argument(befores: tuple[str, str], end: str, schema: Any, root: Schema, rules: Rules) -> str:
    """The grammar of an argument that `end` ends; `befores` stand before a text, and before another value."""
    found = alternatives(schema, root)
    texts, values = list[str](), list[str]()
    any_text = any(map(_takes_any_text, found))
    for one in found:
        fixed, types = fixed_values(one), types_of(one)
        if fixed is not None:
            texts += [rules.literal(value + end) for value in fixed if isinstance(value, str)]
            values += [rules.literal(json.dumps(value) + end) for value in fixed if not isinstance(value, str)]
        elif "string" in types:
            texts.append(rules.until(end, _text(one, end)))
        if fixed is None and any_text and "null" in types:
            values.append(rules.literal("null" + end))
        elif fixed is None and not any_text:
            values.append(_json(one, end, root, rules))
    if not texts:
        values = [_json(schema if isinstance(schema, dict) else {}, end, root, rules)]
    given = zip(befores, (texts, values), strict=True)
    return " | ".join(f"{rules.literal(before)} ({' | '.join(some)})" for before, some in given if some)


def _json(schema: Schema, end: str, root: Schema, rules: Rules) -> str:
    shared = {word: root[word] for word in SHARED if word in root}
    return f"{rules.json({**schema, **shared})} {rules.literal(end)}"


def _text(schema: Schema, end: str) -> str:
    """The regular expression of a text without `end`; that of any text where there are no limits."""
    least, most = length_of(schema, "minLength"), length_of(schema, "maxLength")
    found = [_searched(pattern) for pattern in patterns_of(schema)]
    if least or most is not None:
        found.append(f"(?s:.{{{least or 0},{'' if most is None else most}}})")
    without = f"~/(?s:.*){_escaped(re.escape(end.rstrip()))}(?s:.*)/"
    return " & ".join([*(f"/{_escaped(one)}/" for one in found), without]) if found else ANY


def _searched(pattern: str) -> str:
    """A regular expression for a whole text in which `pattern` is found, as JSON schemas have it."""
    branches, deep = [[""]], 0
    for piece in _PIECES.findall(pattern):
        deep += (piece == "(") - (piece == ")")
        if piece == "|" and not deep:
            branches.append([""])
        else:
            branches[-1].append(piece)
    return "|".join(map(_whole, branches))


def _whole(pieces: Sequence[str]) -> str:
    """A branch without its anchors, and with any text where it has none."""
    begins, ends = pieces[1:2] == ["^"], pieces[-1] == "$"
    inner = "".join(pieces[1 + begins : len(pieces) - ends])
    return f"{'' if begins else '(?s:.*)'}(?:{inner}){'' if ends else '(?s:.*)'}"


def _escaped(pattern: str) -> str:
    """A regular expression as Lark has it between slashes."""
    return re.sub(
        r"\\.|[/\n]",
        lambda found: {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(found[0], found[0]),
        pattern,
        flags=re.S,
    )
