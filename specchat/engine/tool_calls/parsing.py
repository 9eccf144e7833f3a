"""Calls read from the text between a form's marks."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specchat.engine.tool_calls.form import CallForm, CallKind
from specchat.engine.tool_calls.literals import LiteralError, gemma_object, python_calls
from specchat.engine.tool_calls.schemas import argument_schema
from specchat.engine.tool_calls.tagged import tagged_value

_DECODER = json.JSONDecoder(strict=False)
"""Takes line ends and tabs within texts, as models write them."""
NAME_KEYS = ("name", "tool_name", "function", "tool")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_GEMMA = re.compile(r"call:\s*(?P<name>[\w.-]+)\s*(?=\{)")
NAME = re.compile(r"[\w.:/-]{1,256}")
_GROUP = re.compile(r"\(\?P<\w+>")
_REST = re.compile(r"[\s,;\]`]*")
"""Text between and after calls."""


@dataclass(frozen=True)
class ReadCall:
    """A call as read: `arguments` is a JSON object as text, `id` empty unless the model wrote one."""

    name: str
    arguments: str
    id: str = ""


Schemas = Mapping[str, Mapping[str, Any]]
"""JSON schemas of parameters by the name of the tool."""


def read_calls(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    """The calls in `text`, the marks around them left out; none where it cannot be read."""
    try:
        calls = _READERS[form.kind](text, form, schemas)
    except (ValueError, RecursionError):
        return []
    return calls if all(NAME.fullmatch(call.name) or form.kind == "channel" for call in calls) else []


def arguments_of(text: str) -> str:
    """The JSON object in a text, as it stands.

    Raises:
        ValueError: it is none.
    """
    found, end = _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    if not isinstance(found, dict) or text[end:].strip():
        raise ValueError("no JSON object")
    return _standing(text[:end].strip(), found)


def _standing(text: str, value: dict[str, Any]) -> str:
    """The text of `value`, or the same value as strict JSON where it is not."""
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)
    return text


def _objects(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    del schemas
    found: list[Any] = []
    at = _first(text, 0)
    while at < len(text):
        value, at = _DECODER.raw_decode(text, at)
        found += value if isinstance(value, list) else [value]
        rest = _REST.match(text, at)
        assert rest is not None
        at = rest.end()
    return [_object(value, form) for value in found]


def _first(text: str, at: int) -> int:
    """The place of the first brace or bracket.

    Raises:
        ValueError: there is none.
    """
    places = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    if not places:
        raise ValueError("no object")
    return min(places)


def _object(value: Any, form: CallForm) -> ReadCall:
    if not isinstance(value, dict) or not value:
        raise ValueError("no object")
    if not form.keys.name:
        (name, arguments), *others = value.items()
        if others:
            raise ValueError("several keys")
        return ReadCall(name, _dumped(arguments))
    value = value["function"] if isinstance(value.get("function"), dict) else value
    name = next((value[key] for key in (form.keys.name, *NAME_KEYS) if key in value), None)
    arguments = next((value[key] for key in (form.keys.arguments, *ARGUMENT_KEYS) if key in value), {})
    if not isinstance(name, str):
        raise ValueError("no name")
    given = value.get(form.keys.id) if form.keys.id else ""
    return ReadCall(name, _dumped(arguments), str(given or ""))


def _dumped(arguments: Any) -> str:
    """An object as JSON; models also write its JSON as a text."""
    if isinstance(arguments, str):
        return arguments_of(arguments or "{}")
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("no object")
    return json.dumps(arguments or {}, ensure_ascii=False)


def _named(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    del schemas
    calls, at = [], 0
    while found := re.compile(form.name).search(text, at):
        start = _first(text, found.end())
        if form.later and text[at : found.start()].strip():
            raise ValueError("text between calls")
        if text[found.end() : start].strip():
            raise ValueError("arguments are missing")
        value, at = _DECODER.raw_decode(text, start)
        if not isinstance(value, dict):
            raise ValueError("no object")
        calls.append(ReadCall(found["name"], _standing(text[start:at], value), found.groupdict().get("id") or ""))
    if form.later and text[at:].strip():
        raise ValueError("text behind calls")
    return calls


def _tagged(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    name, key = re.compile(form.name), re.compile(form.key)
    end = re.compile(rf"{form.value_end}(?=\s*+(?:{_GROUP.sub('(?:', form.key)}|</|\Z))")
    calls: list[ReadCall] = []
    found = name.search(text)
    while found:
        schema = schemas.get(found["name"], {})
        arguments: dict[str, Any] = {}
        at = found.end()
        while (each := key.match(text, _after_space(text, at))) is not None:
            ended = end.search(text, each.end())
            if ended is None:
                raise ValueError("a value without an end")
            value, at = text[each.end() : ended.start()], ended.end()
            said = each.groupdict().get("string")
            of = {"type": "string"} if said == "true" else argument_schema(schema, each["key"])
            arguments[each["key"]] = tagged_value(value, of, schema)
        calls.append(ReadCall(found["name"], json.dumps(arguments, ensure_ascii=False)))
        found = name.search(text, at)
    return calls


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _gemma(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    del form, schemas
    calls, at = [], 0
    while found := _GEMMA.search(text, at):
        try:
            arguments, at = gemma_object(text, found.end())
        except LiteralError:
            value, at = _DECODER.raw_decode(text, found.end())
            if not isinstance(value, dict):
                raise
            arguments = value
        calls.append(ReadCall(found["name"], json.dumps(arguments, ensure_ascii=False)))
    return calls


def _python(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    del form, schemas
    return [ReadCall(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in python_calls(text)]


def _channel(text: str, form: CallForm, schemas: Schemas) -> list[ReadCall]:
    """The content of a part; its header has the name."""
    del form, schemas
    return [ReadCall("", arguments_of(text or "{}"))]


_READERS: Mapping[CallKind, Callable[[str, CallForm, Schemas], list[ReadCall]]] = {
    "object": _objects,
    "named": _named,
    "tagged": _tagged,
    "gemma": _gemma,
    "python": _python,
    "channel": _channel,
}
