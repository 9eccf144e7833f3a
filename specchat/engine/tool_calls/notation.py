"""Grammars of values that are not JSON, by a JSON schema: Python's literals, and Gemma's notation.

Types, properties, required ones, enumerations, alternatives and references hold; limits and patterns do not.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specchat.engine.tool_calls.literals import MOST_DEEP, QUOTE
from specchat.engine.tool_calls.rules import Rules
from specchat.engine.tool_calls.schemas import referred

_INTEGER, _NUMBER = r"/-?(0|[1-9][0-9]*)/", r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?/"
_TEXT = r"""/"([^"\\\n]|\\["'\\nrt])*"|'([^'\\\n]|\\["'\\nrt])*'/"""
"""A text in either of Python's quotes."""
_KEY = r"/[A-Za-z_][A-Za-z0-9_]*/"
_KINDS = ("string", "number", "boolean", "null", "array", "object")


@dataclass
class Notation:
    """A notation of values; `separator` stands between items, `equals` between an argument's name and its value."""

    rules: Rules
    separator: str
    equals: str
    colon: str
    words: Mapping[bool | None, str]
    text: Callable[[], str]
    quoted: Callable[[str], tuple[str, ...]]
    key: Callable[[str], tuple[str, ...]]
    any_key: str
    ordered: bool = False
    """True where names stand in the order of the alphabet."""
    _known: dict[str, str] = field(default_factory=dict)
    """Rules by what they are for."""

    def arguments(self, schema: Mapping[str, Any]) -> str:
        """Named arguments, without what is around them."""
        return self._members(schema, schema, self.equals, _bare)

    def _value(self, schema: Any, root: Mapping[str, Any], deep: int = 0) -> str:
        if not isinstance(schema, dict) or deep > MOST_DEEP:
            return self._any()
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference, root, deep)
        options = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(options, list) and options:
            return f"({' | '.join(self._written(one) for one in options)})"
        for word in ("anyOf", "oneOf"):
            if isinstance(found := schema.get(word), list) and found:
                return f"({' | '.join(self._value(one, root, deep + 1) for one in found)})"
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        made = [self._of(kind, schema, root, deep) for kind in kinds]
        return f"({' | '.join(made)})" if made else self._any()

    def _of(self, kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], deep: int) -> str:
        match kind:
            case "string":
                return self.text()
            case "integer":
                return _INTEGER
            case "number":
                return _NUMBER
            case "boolean":
                return f"({json.dumps(self.words[True])} | {json.dumps(self.words[False])})"
            case "null":
                return json.dumps(self.words[None])
            case "array":
                return self._list(self._value(schema.get("items"), root, deep + 1))
            case "object" if isinstance(schema.get("properties"), dict):
                return f'"{{" {self._members(schema, root, self.colon, self.key, deep)} "}}"'
        return self._object() if kind == "object" else self._any()

    def _referred(self, reference: str, root: Mapping[str, Any], deep: int) -> str:
        if reference in self._known:
            return self._known[reference]
        self._known[reference] = name = self.rules.name()
        return self.rules.set(name, self._value(referred(reference, root), root, deep + 1))

    def _any(self) -> str:
        """Any value."""
        if "any" not in self._known:
            self._known["any"] = name = self.rules.name()
            self.rules.set(name, " | ".join(self._of(kind, {}, {}, 0) for kind in _KINDS))
        return self._known["any"]

    def _list(self, item: str) -> str:
        return f'"[" ({item} ({json.dumps(self.separator)} {item})*)? "]"'

    def _object(self) -> str:
        member = f"{self.any_key} {json.dumps(self.colon)} {self._any()}"
        return f'"{{" ({member} ({json.dumps(self.separator)} {member})*)? "}}"'

    def _members(
        self,
        schema: Mapping[str, Any],
        root: Mapping[str, Any],
        equals: str,
        key: Callable[[str], tuple[str, ...]],
        deep: int = 0,
    ) -> str:
        """The properties of an object in their order, those that are not required or not."""
        found = schema.get("properties")
        properties = found if isinstance(found, dict) else {}
        names = list(properties)
        required = schema.get("required") or []
        first, later = '""', '""'
        for name in sorted(names, reverse=True) if self.ordered else names[::-1]:
            begin = self._one_of(f"{written}{equals}" for written in key(name))
            member = f"{begin} {self._value(properties[name], root, deep + 1)}"
            begun = self.rules.add(f"{member} {later}")
            after = f"{json.dumps(self.separator)} {begun}"
            if name in required:
                first, later = begun, self.rules.add(after)
            else:
                first, later = self.rules.add(f"{begun} | {first}"), self.rules.add(f"{after} | {later}")
        return first

    def _one_of(self, texts: Iterable[str]) -> str:
        return f"({' | '.join(map(self.rules.literal, texts))})"

    def _written(self, value: Any) -> str:
        """A value of an enumeration."""
        if isinstance(value, bool) or value is None:
            return json.dumps(self.words[value])
        if isinstance(value, str):
            return self._one_of(self.quoted(value))
        if isinstance(value, int | float):
            return json.dumps(str(value))
        return self._any()


def gemma(rules: Rules) -> Notation:
    """Gemma's: `key:<|"|>text<|"|>,other:[1,2]`."""
    words = {True: "true", False: "false", None: "null"}

    def text() -> str:
        return f"{rules.literal(QUOTE)} {rules.until(QUOTE)}"

    return Notation(
        rules, ",", ":", ":", words, text, lambda said: (f"{QUOTE}{said}{QUOTE}",), _bare, _KEY, ordered=True
    )


def python(rules: Rules) -> Notation:
    """Python's: `key="text", other=[1, 2]`."""
    words = {True: "True", False: "False", None: "None"}
    return Notation(rules, ", ", "=", ": ", words, lambda: _TEXT, _python_text, _python_text, _TEXT)


def _bare(name: str) -> tuple[str, ...]:
    return (name,)


def _python_text(text: str) -> tuple[str, ...]:
    return json.dumps(text, ensure_ascii=False), repr(text)
