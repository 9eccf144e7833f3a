"""Grammars of calls that a reply has to make, as Lark for llguidance."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.engine.options import Tool
from specchat.engine.tool_calls.form import CallForm
from specchat.engine.tool_calls.giving import schema_of
from specchat.engine.tool_calls.samples import COUNT, ID, KEY, NAME, VALUE

_PLAIN = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SHARED = ("$defs", "definitions")
"""Keys of a schema that references lead to, from its root."""
_ANY = "/(?s:.*)/"
_ID = "/[a-zA-Z0-9]{9}/"


def forced_calls(tools: Sequence[Tool], form: CallForm, marks: Mapping[str, int]) -> str:
    """The grammar of a reply that is one call of one of `tools`; empty where the form cannot be held to.

    Args:
        marks: tokens of the form's marks, by their text.
    """
    makers = {"object": _object, "named": _named, "tagged": _tagged}
    if form.kind not in makers or NAME not in form.sample:
        return ""
    if form.closing == form.end:
        # The token that ends the reply belongs to no grammar.
        form = replace(form, sample=form.sample.removesuffix(form.closing))
    rules = _Rules(marks)
    calls = [makers[form.kind](tool, form, rules) for tool in tools]
    return rules.text(" | ".join(calls)) if all(calls) else ""


class _Rules:
    """Rules of a grammar under way."""

    def __init__(self, marks: Mapping[str, int]) -> None:
        self._marks = marks
        self._rules: list[str] = []

    def text(self, start: str) -> str:
        return "\n".join((f"start: {start}", *self._rules))

    def add(self, body: str, options: str = "") -> str:
        """A rule; gives back its name."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def literal(self, text: str) -> str:
        """A text, marks in it by number: no other spelling of them counts."""
        marks = "|".join(map(re.escape, sorted(self._marks, key=len, reverse=True)))
        parts = re.split(f"({marks})", text) if marks else [text]
        return " ".join(f"<[{self._marks[p]}]>" if p in self._marks else json.dumps(p) for p in parts if p)

    def value(self, schema: Mapping[str, Any]) -> str:
        """A JSON value by a schema, written as most models write it."""
        return self.add(f"%json {json.dumps({'x-guidance': _PLAIN, **schema})}")

    def until(self, end: str) -> str:
        """Any text up to `end`, and that."""
        if any(end.strip().startswith(mark) for mark in self._marks):
            return f"{self.add(_ANY)} {self.literal(end)}"
        return self.add(_ANY, f"[suffix={json.dumps(end)}]")


def _object(tool: Tool, form: CallForm, rules: _Rules) -> str:
    at, end, sample = _json_with(form.sample, NAME)
    schema = _closed(tool)
    fields: dict[str, Any] = {}
    for key, value in sample.items():
        if key == form.id_key:
            fields[key] = {"type": "string", "pattern": "^[a-zA-Z0-9]{9}$"}
        elif key == form.arguments_key or not form.name_key:
            fields[key if form.name_key else tool.name] = _without_shared(schema)
        else:
            fields[key] = {"const": tool.name if key == form.name_key else value}
    whole = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    made = rules.value({**whole, **{key: schema[key] for key in _SHARED if key in schema}})
    return " ".join(filter(None, (rules.literal(form.sample[:at]), made, rules.literal(form.sample[end:]))))


def _named(tool: Tool, form: CallForm, rules: _Rules) -> str:
    at, end, _ = _json_with(form.sample, KEY)
    before, after = form.sample[:at].replace(NAME, tool.name), form.sample[end:]
    parts = [rules.literal(part) for part in before.split(ID)]
    schema = _closed(tool)
    return " ".join(filter(None, (f" {_ID} ".join(parts), rules.value(schema), rules.literal(after))))


def _tagged(tool: Tool, form: CallForm, rules: _Rules) -> str:
    """A call whose arguments stand in the order of the schema."""
    sample = form.sample
    at, key, value, count = (sample.find(word) for word in (NAME, KEY, VALUE, COUNT))
    number = sample.find("7", count)
    between, joined = sample[at + len(NAME) : key], sample[value + len(VALUE) : count]
    starts = (n for n in range(len(between)) if between[n:].lstrip().startswith("<") and joined.endswith(between[n:]))
    opened = between[next(starts) :]
    ended = joined.removesuffix(opened)
    schema = schema_of(tool)
    properties = schema.get("properties")
    required = schema.get("required") or []
    body = [rules.literal(sample[:at] + tool.name + between.removesuffix(opened))]
    for name, one in (properties if isinstance(properties, dict) else {}).items():
        texts = isinstance(one, dict) and one.get("type") == "string"
        middle = sample[key + len(KEY) : value] if texts else sample[count + len(COUNT) : number]
        shared = {each: schema[each] for each in _SHARED if each in schema}
        given = _text(one, ended, rules) if texts else f"{rules.value({**one, **shared})} {rules.literal(ended)}"
        argument = f"{rules.literal(opened + name + middle)} {given}"
        body.append(argument if name in required else f"({argument})?")
    return " ".join((*body, rules.literal(sample[number + 1 :].removeprefix(ended))))


def _text(schema: Mapping[str, Any], end: str, rules: _Rules) -> str:
    """A text between tags; of an enumeration one of its values."""
    options = [one for one in schema.get("enum", ()) if isinstance(one, str)]
    if not options:
        return rules.until(end)
    return f"({' | '.join(rules.literal(one) for one in options if one)}) {rules.literal(end)}"


def _json_with(text: str, word: str) -> tuple[int, int, dict[str, Any]]:
    """The first JSON object in `text` that holds `word`: its start, its end and its value."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            end = at
        if word in text[at:end]:
            return at, end, value
        at = text.find("{", at + 1)
    raise AssertionError(f"no object with {word} in {text!r}")


def _closed(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments; unless it says otherwise there are no others than it names."""
    return {"type": "object", "additionalProperties": False, **schema_of(tool)}


def _without_shared(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _SHARED}
