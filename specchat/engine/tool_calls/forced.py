"""Grammars of calls that a reply has to make, as Lark for llguidance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specchat.engine.protocol.options import Tool
from specchat.engine.tool_calls.form import CallForm
from specchat.engine.tool_calls.giving import schema_of
from specchat.engine.tool_calls.notation import gemma, python
from specchat.engine.tool_calls.rules import ANY, NAMING, Rules
from specchat.engine.tool_calls.samples import COUNT, ID, KEY, NAME, VALUE
from specchat.engine.tool_calls.tagged import SHARED, tagged_argument

_HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
CONSTRAIN = "<|constrain|>"
_ID = "/[a-zA-Z0-9]{9}/"


def forced_calls(tools: Sequence[Tool], form: CallForm, marks: Mapping[str, int], answer: str = "") -> str:
    """The grammar of one call of one of `tools`, or of an answer; empty where the form cannot be held to.

    That of a call in a channel begins with the reply, reasoning included.

    Args:
        marks: tokens of marks, by their text.
        answer: the body of a rule for an answer that is no call; empty where the reply has to call.
    """
    makers = {"object": _object, "named": _named, "tagged": _tagged, "gemma": _gemma, "python": _python}
    if form.kind == "channel":
        return _in_channel(tools, marks, answer)
    if NAME not in form.sample:
        return ""
    if form.closing == form.end:
        # The token that ends the reply belongs to no grammar.
        form = replace(form, sample=form.sample.removesuffix(form.closing))
    rules = Rules(marks)
    calls = [makers[form.kind](tool, form, rules) for tool in tools]
    either = [rules.add(answer)] if answer else []
    return rules.text(" | ".join([*calls, *either])) if all(calls) else ""


def _object(tool: Tool, form: CallForm, rules: Rules) -> str:
    at, end, sample = _json_with(form.sample, NAME)
    schema = _closed(tool)
    fields: dict[str, Any] = {}
    for key, value in sample.items():
        if key == form.keys.id:
            fields[key] = {"type": "string", "pattern": "^[a-zA-Z0-9]{9}$"}
        elif key == form.keys.arguments or not form.keys.name:
            fields[key if form.keys.name else tool.name] = _without_shared(schema)
        else:
            fields[key] = {"const": tool.name if key == form.keys.name else value}
    whole = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    made = rules.json({**whole, **{key: schema[key] for key in SHARED if key in schema}})
    return " ".join(filter(None, (rules.literal(form.sample[:at]), made, rules.literal(form.sample[end:]))))


def _named(tool: Tool, form: CallForm, rules: Rules) -> str:
    at, end, _ = _json_with(form.sample, KEY)
    before, after = form.sample[:at].replace(NAME, tool.name), form.sample[end:]
    parts = [rules.literal(part) for part in before.split(ID)]
    schema = _closed(tool)
    return " ".join(filter(None, (f" {_ID} ".join(parts), rules.json(schema), rules.literal(after))))


def _tagged(tool: Tool, form: CallForm, rules: Rules) -> str:
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
    middles = sample[key + len(KEY) : value], sample[count + len(COUNT) : number]
    for name, one in (properties if isinstance(properties, dict) else {}).items():
        before_text, before_value = (opened + name + middle for middle in middles)
        argument = tagged_argument((before_text, before_value), ended, one, schema, rules)
        body.append(f"({argument}){'?' * (name not in required)}")
    return " ".join((*body, rules.literal(sample[number + 1 :].removeprefix(ended))))


def _gemma(tool: Tool, form: CallForm, rules: Rules) -> str:
    before, after = _around(tool, form, "{", "}")
    return f'{rules.literal(before)} "{{" {gemma(rules).arguments(schema_of(tool))} "}}" {rules.literal(after)}'


def _python(tool: Tool, form: CallForm, rules: Rules) -> str:
    before, after = _around(tool, form, "(", ")")
    return f'{rules.literal(before)} "(" {python(rules).arguments(schema_of(tool))} ")" {rules.literal(after)}'


def _around(tool: Tool, form: CallForm, opened: str, closed: str) -> tuple[str, str]:
    """The text before and after the brackets with the arguments."""
    before, _, rest = form.sample.partition(opened)
    return before.replace(NAME, tool.name), rest.rpartition(closed)[2]


def _in_channel(tools: Sequence[Tool], marks: Mapping[str, int], answer: str) -> str:
    """A reply of the harmony format whose parts are reasoning, and then a call or the answer."""
    if any(mark not in marks for mark in _HARMONY):
        return ""
    rules = Rules(marks)
    json_ = rules.literal(f" {CONSTRAIN}json" if CONSTRAIN in marks else " json")
    analysis = rules.literal("<|channel|>analysis<|message|>")
    reasoning = rules.add(f"{analysis} {rules.add(ANY)} {rules.literal('<|end|><|start|>assistant')}")
    calls = []
    for tool in tools:
        to = f" to=functions.{tool.name}"
        late, early = rules.literal(f"<|channel|>commentary{to}"), rules.literal(f"{to}<|channel|>commentary")
        content = f"{rules.literal('<|message|>')} {rules.json(_closed(tool))}"
        calls.append(f"({late} | {early}) {json_} {content}")
    if answer:
        calls.append(f"{rules.literal('<|channel|>final<|message|>')} {rules.add(answer)}")
    return rules.text(f"{reasoning}* ({' | '.join(calls)})")


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
    return {key: value for key, value in schema.items() if key not in (*SHARED, *NAMING)}
