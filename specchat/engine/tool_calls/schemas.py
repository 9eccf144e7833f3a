"""JSON schemas of arguments, without the words that lead elsewhere: references, alternatives and combinations."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from specchat.engine.tool_calls.literals import MOST_DEEP

Schema = Mapping[str, Any]
MAX_ALTERNATIVES = 64
MAX_VISITED = 1000
"""Schemas that are looked at for the alternatives of one; references can lead to the same one without end."""
_COMBINING = ("$ref", "allOf", "anyOf", "oneOf")
_TYPES: Mapping[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array", dict: "object"
}  # fmt: skip


def alternatives(schema: Any, root: Schema) -> list[dict[str, Any]]:
    """Schemas of which a value fulfils one; references lead into `root`. Those that are too many allow anything."""
    budget = iter(range(MAX_VISITED))

    def found_in(schema: Any, deep: int) -> list[dict[str, Any]]:
        if not isinstance(schema, Mapping) or deep > MOST_DEEP or next(budget, None) is None:
            return [{}]
        found = [{word: value for word, value in schema.items() if word not in _COMBINING}]
        every = [[referred(schema["$ref"], root)]] if "$ref" in schema else []
        every += [[one] for one in _listed(schema.get("allOf"))]
        every += [some for word in ("anyOf", "oneOf") if (some := _listed(schema.get(word)))]
        for some in every:
            others = [other for one in some for other in found_in(one, deep + 1)]
            both = [_both(one, other) for one in found for other in others[:MAX_ALTERNATIVES]]
            found = [one for one in both if one.get("type") != []]
            if len(both) > MAX_ALTERNATIVES:
                return [{}]
        return found

    return found_in(schema, 0) or [{}]


def referred(reference: Any, root: Schema) -> Any:
    """The schema that a reference leads to; None where there is none."""
    found: Any = root
    for part in unquote(str(reference)).removeprefix("#").split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def argument_schema(root: Schema, name: str) -> Any:
    """The schema of an argument."""
    found = []
    for one in alternatives(root, root):
        properties = one.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        found.append(known.get(name, one.get("additionalProperties")))
    return {"anyOf": found}


def fixed_values(schema: Schema) -> list[Any] | None:
    """The values that an alternative lists; None where it lists none."""
    return [schema["const"]] if "const" in schema else _listed(schema.get("enum")) or None


def types_of(schema: Schema) -> frozenset[str]:
    """The types that an alternative allows; empty for any."""
    fixed = fixed_values(schema)
    kinds = _listed(schema.get("type")) if fixed is None else map(type_name, fixed)
    return frozenset(kind for kind in kinds if isinstance(kind, str))


def type_name(value: Any) -> str:
    """The type of a JSON value."""
    return _TYPES[type(value)]


def patterns_of(schema: Schema) -> list[str]:
    """The patterns that a text has to fulfil, all of them."""
    found = (one.get("pattern") for one in (schema, *_listed(schema.get("allOf"))))
    return [pattern for pattern in found if isinstance(pattern, str)]


def length_of(schema: Schema, word: str) -> int | None:
    """The limit that `minLength` or `maxLength` sets."""
    value = schema.get(word)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A schema that demands what both do."""
    found = {**one, **other}
    if "type" in one and "type" in other:
        found["type"] = [kind for kind in _listed(one["type"]) if kind in _listed(other["type"])]
    for word, stricter in (("minLength", max), ("maxLength", min)):
        limits = [limit for each in (one, other) if (limit := length_of(each, word)) is not None]
        found |= {word: stricter(limits)} if limits else {}
    if isinstance(one.get("properties"), dict) and isinstance(other.get("properties"), dict):
        found["properties"] = {**one["properties"], **other["properties"]}
    if "pattern" in one and "pattern" in other:
        found["allOf"] = [*one.get("allOf", ()), *other.get("allOf", ()), {"pattern": one["pattern"]}]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
