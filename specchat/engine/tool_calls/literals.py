"""Values as models write them in calls that are not JSON: Gemma's notation, Python's, and text between tags."""

import ast
import json
import re
from typing import Any

MOST_DEEP = 64
"""Limit of nesting."""
QUOTE = '<|"|>'
"""Gemma's quotation mark."""
_BARE = re.compile(r"[^,}\]]*")


class LiteralError(ValueError):
    """A text that is no value."""


def python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of calls in Python's syntax, `[look(path="a")]`.

    Raises:
        LiteralError: the text has another form.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        calls = tree.elts if isinstance(tree, ast.List) else [tree]
        return [(_dotted(call), _keywords(call)) for call in calls]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise LiteralError(str(error)) from None


def _dotted(call: ast.expr) -> str:
    if not isinstance(call, ast.Call) or call.args:
        raise LiteralError("no call with named arguments")
    return ast.unparse(call.func)


def _keywords(call: ast.expr) -> dict[str, Any]:
    assert isinstance(call, ast.Call)
    return {str(each.arg): _plain(_named(each.value)) for each in call.keywords}


def _named(value: ast.expr) -> Any:
    """A literal; the words of JSON count as well."""
    if isinstance(value, ast.Name) and value.id in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[value.id]
    return ast.literal_eval(value)


def _plain(value: Any) -> Any:
    """Check that a value can stand in JSON."""
    json.dumps(value)
    return value


def gemma_object(text: str, at: int) -> tuple[dict[str, Any], int]:
    """The object that begins with the brace at `at`, and the place after it.

    Raises:
        LiteralError: there is none.
    """
    value, end = _gemma(text, at, 0)
    if not isinstance(value, dict):
        raise LiteralError("no object")
    return value, end


def _gemma(text: str, at: int, deep: int) -> tuple[Any, int]:
    if deep > MOST_DEEP:
        raise LiteralError("nested too deeply")
    if text.startswith(QUOTE, at):
        end = text.find(QUOTE, at + len(QUOTE))
        if end < 0:
            raise LiteralError("a text without an end")
        return text[at + len(QUOTE) : end], end + len(QUOTE)
    if text[at : at + 1] in ("{", "["):
        return _gemma_items(text, at, deep)
    found = _BARE.match(text, at)
    assert found is not None
    bare = found[0].strip()
    try:
        return json.loads(bare), found.end()
    except ValueError:
        if not bare:
            raise LiteralError("a value is missing") from None
        return bare, found.end()


def _gemma_items(text: str, at: int, deep: int) -> tuple[Any, int]:
    closing, named = ("}", True) if text[at] == "{" else ("]", False)
    items: dict[Any, Any] = {}
    at += 1
    while text[at : at + 1] != closing:
        key: Any = len(items)
        if named:
            key, at = _gemma_key(text, at)
        items[key], at = _gemma(text, at, deep + 1)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != closing:
            raise LiteralError("items without an end")
    return (items if named else list(items.values())), at + 1


def _gemma_key(text: str, at: int) -> tuple[str, int]:
    end = text.find(":", at)
    if end < 0:
        raise LiteralError("a key without a value")
    return text[at:end].strip().removeprefix(QUOTE).removesuffix(QUOTE).strip('"'), end + 1
