"""Finds how a chat template takes tools, and the form of its calls, from what it renders."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from specchat.engine.protocol.options import Message, ToolCall
from specchat.engine.tool_calls.form import CallForm, CallKeys, ToolFormat
from specchat.engine.tool_calls.giving import written_calls
from specchat.engine.tool_calls.literals import QUOTE
from specchat.engine.tool_calls.parsing import read_calls
from specchat.engine.tool_calls.samples import (
    AGAIN,
    ANSWERED,
    ARGUMENTS,
    ASKED,
    COUNT,
    ID,
    KEY,
    LONG_ID,
    NAME,
    RESULT,
    SCHEMA,
    VALUE,
)
from specchat.engine.tool_calls.tags import TAG, closing_in, literal, tags_in

CONTENT = "<|message|>"
"""Begins the content of a part in the harmony format."""
VARIABLES = (("tools", False), ("xml_tools", False), ("functions", True))
"""Names that templates have for tools."""
UNWRITTEN = (
    ("<|tool_call_start|>", CallForm("python", "<|tool_call_start|>", "<|tool_call_end|>")),
    ("<|tool_call|>", CallForm("object", "<|tool_call|>", "")),
    ("<tool_call>", CallForm("object", "<tool_call>", "</tool_call>")),
)
"""Forms of models whose templates leave it to the content to have the calls, by the mark that tells them."""

AT_START = r"\A\s*+"
"""The pattern before a name at the start of the calls."""
_HALF_TAG = re.compile(r"[<\[][^<>\[\]\s]*\Z")

Show = Callable[[Sequence[Message], ToolFormat, bool], str]
"""Renders a chat with `TOOL` in a format, with or without the header of the next reply; empty where that fails."""


def tool_format(show: Show, tokens: Collection[str], source: str, reasoning: Collection[str]) -> ToolFormat | None:
    """The format of a template, or None where it shows no tools or no form of calls.

    Args:
        tokens: texts of special and added tokens.
        source: the template.
        reasoning: marks that may stand between the header of a reply and a call.
    """
    taken = _taken(show)
    if taken is None:
        return None
    for call in (ToolCall(LONG_ID, NAME, json.dumps(ARGUMENTS)), ToolCall(ID, NAME, json.dumps(ARGUMENTS))):
        found = _written(show, taken, call, tokens, reasoning)
        if found is not None:
            found = replace(found, ids="any" if call.id == LONG_ID else "nine")
            return _with_results(show, replace(found, call=_with_later(show, found, call, tokens)), call)
    for mark, form in UNWRITTEN:
        if mark in tokens or mark in source:
            marks = frozenset(text for text in (form.opening, form.closing) if text in tokens)
            said = Message("assistant", "", tool_calls=(call,))
            made = replace(form, marks=marks, sample=written_calls(said, replace(taken, call=form)))
            return _with_results(show, replace(taken, writes_calls=False, call=made), call)
    return None


def _taken(show: Show) -> ToolFormat | None:
    """The way in which the template shows a tool."""
    for (variable, as_text), described in product(VARIABLES, (False, True)):
        form = ToolFormat(variable, as_text, described)
        if NAME in show([ASKED], form, True):
            return form
    return None


def _written(
    show: Show, taken: ToolFormat, call: ToolCall, tokens: Collection[str], reasoning: Collection[str]
) -> ToolFormat | None:
    """The shortest way of giving a call that the template writes so that it can be read."""
    found: list[tuple[bool, int, ToolFormat]] = []
    for objects, nothing in product((True, False), ("", None)):
        form = replace(taken, objects=objects, nothing=nothing)
        text = _reply(show, form, [call], reasoning)
        if NAME not in text.partition(RESULT)[0]:
            continue
        for made in _forms(text.partition(RESULT)[0], call, tokens):
            if _reads(text.partition(RESULT)[0], made):
                found.append((RESULT not in text, len(text), replace(form, call=made)))
                break
        if found and objects and nothing is None:
            break
    return min(found, key=lambda one: one[:2])[2] if found else None


def _reply(show: Show, form: ToolFormat, calls: Sequence[ToolCall], reasoning: Collection[str]) -> str:
    """The text from the start of a reply that calls, to the results and beyond."""
    said = Message("assistant", "", tool_calls=tuple(calls))
    results = [Message("tool", RESULT, tool_call_id=call.id, tool_name=call.name) for call in calls]
    text = show([ASKED, said, *results], form, False) or show([ASKED, said], form, False)
    prompt = show([ASKED], form, True)
    if not text.startswith(prompt):
        other = show([ASKED, ANSWERED], form, False)
        same = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
        prompt = _HALF_TAG.sub("", text[:same])
    text = text[len(prompt) :]
    before = text[: max(0, text.find(NAME))]
    return text[max((before.find(mark) + len(mark) for mark in reasoning if mark in before), default=0) :]


def _reads(text: str, form: CallForm) -> bool:
    """True where the call is read back from the text that the template wrote."""
    read = read_calls(_inner(text, form), form, {NAME: SCHEMA})
    return [(call.name or NAME, json.loads(call.arguments)) for call in read] == [(NAME, ARGUMENTS)]


def _inner(text: str, form: CallForm) -> str:
    """The text between a form's marks, of one call."""
    if form.kind == "channel":
        return text.partition(CONTENT)[2].partition(form.end)[0]
    inner = text.partition(form.opening)[2] if form.opening else text
    if form.closing:
        return inner.partition(form.closing)[0]
    return inner[: inner.find(form.end)] if form.end and form.end in inner else inner


def _forms(text: str, call: ToolCall, tokens: Collection[str]) -> Iterator[CallForm]:
    """Forms that may be that of a call which the template writes as the beginning of `text`."""
    yield from _channels(text)
    for start, made in (*_objects(text, call), *_gemmas(text), *_named(text, call), *_tagged(text)):
        before = text[:start]
        opening = _opening(before)
        behind = text[text.rfind(VALUE) :]
        closing = closing_in(opening, behind)
        inside = text.rfind(closing) + len(closing) if closing else _end_of(text)
        end = next((token for token in tokens if text[inside:].lstrip().startswith(token)), "")
        marks = frozenset(token for token in tokens if token in text[:inside])
        end = end or (closing if closing in tokens else "")
        sample = text[text.find(opening) : inside].strip().replace(call.id, ID)
        yield replace(made, opening=opening, closing=closing, end=end, marks=marks, sample=sample)


def _opening(before: str) -> str:
    """The first tag before a call, else the word there."""
    if tags := tags_in(before):
        return tags[0]
    return before.strip().splitlines()[0] if before.strip() else ""


def _end_of(text: str) -> int:
    """The place behind a call without a closing mark, which ends in JSON."""
    found = re.compile(r"[\s\]`]*").match(text, text.rfind("}") + 1)
    return found.end() if found else len(text)


def _objects(text: str, call: ToolCall) -> Iterator[tuple[int, CallForm]]:
    """A JSON object that has the name and the arguments."""
    at = text.find("{")
    decoder = json.JSONDecoder()
    while 0 <= at < text.find(VALUE):
        try:
            value, _ = decoder.raw_decode(text, at)
        except ValueError:
            value = None
        if isinstance(value, dict):
            if list(value) == [NAME]:
                yield at, CallForm("object", keys=CallKeys("", ""))
            inner = value["function"] if isinstance(value.get("function"), dict) else value
            name, given = (next((k for k, v in inner.items() if v == wanted), "") for wanted in (NAME, ARGUMENTS))
            if name and given:
                key = next((k for k, v in value.items() if v == call.id), "")
                yield at, CallForm("object", keys=CallKeys(name, given, key))
                return
        at = text.find("{", at + 1)


def _gemmas(text: str) -> Iterator[tuple[int, CallForm]]:
    if f"call:{NAME}{{" in text and QUOTE in text:
        yield text.find(f"call:{NAME}"), CallForm("gemma")


def _named(text: str, call: ToolCall) -> Iterator[tuple[int, CallForm]]:
    """A name, and behind it a JSON object of the arguments."""
    at = text.find(NAME)
    brace = text.find("{", at)
    try:
        value, _ = json.JSONDecoder().raw_decode(text, brace)
    except ValueError:
        return
    if value != ARGUMENTS or at < 0:
        return
    before, between = text[:at], text[at + len(NAME) : brace]
    middle = literal(between)
    if call.id in between:
        middle = r"(?P<id>[\w.:-]+)".join(literal(part) for part in between.split(call.id))
    elif between.strip():
        middle = re.sub(r"\d+", r"\\d+", middle)
    yield at, CallForm("named", name=rf"{_before_name(before)}(?P<name>[\w./-]+?){middle}(?=\s*+\{{)")


def _before_name(before: str) -> str:
    """The pattern of what stands before each name: from the last tag on, unless that opens the calls."""
    places = [found.start() for found in TAG.finditer(before)]
    rest = before[places[-1] :] if places else before
    opening = _opening(before)
    if len(places) > 1 or not opening:
        return literal(rest) or AT_START
    return rf"{AT_START}{literal(rest.partition(opening)[2].strip())}"


def _tagged(text: str) -> Iterator[tuple[int, CallForm]]:
    """A name, and behind it the arguments between tags."""
    at, key, value, count = (text.find(word) for word in (NAME, KEY, VALUE, COUNT))
    if not 0 <= at < key < value < count:
        return
    before, between, after = text[:at], text[at + len(NAME) : key], text[key + len(KEY) : value]
    # Between two arguments stand the end of the first value and the start of the second key.
    joined = text[value + len(VALUE) : count]
    starts = (n for n in range(len(between)) if between[n:].lstrip().startswith("<"))
    start = next((n for n in starts if joined.endswith(between[n:])), None)
    if start is None:
        return
    key_start, name_end = between[start:], literal(between[:start].strip())
    word = r"[^\s<>\"\']+?"
    yield (
        at,
        CallForm(
            "tagged",
            name=rf"{_before_name(before)}(?P<name>{word})\s*+{name_end}(?=\s*+(?:<|\Z))",
            key=rf"{literal(key_start.lstrip())}(?P<key>{word}){_after_key(after)}",
            value_end=_optional_line(joined.removesuffix(key_start)),
        ),
    )


def _after_key(after: str) -> str:
    """The pattern between a key and its value; an attribute may tell texts from other values."""
    if 'string="true"' in after:
        left, _, right = after.partition('string="true"')
        return rf'{literal(left)}string="(?P<string>true|false)"{_optional_line(right)}'
    return _optional_line(after)


def _optional_line(text: str) -> str:
    """A literal whose line ends at its sides may be missing."""
    inner = literal(text.strip("\n"))
    return ("\n?" if text.startswith("\n") else "") + inner + ("\n?" if text.endswith("\n") else "")


def _channels(text: str) -> Iterator[CallForm]:
    """A part addressed to a function, as in the harmony format."""
    if f"to=functions.{NAME}" in text and CONTENT in text:
        end = "<|call|>" if "<|call|>" in text else "<|end|>"
        yield CallForm("channel", end=end)


def _with_later(show: Show, form: ToolFormat, call: ToolCall, tokens: Collection[str]) -> CallForm:
    """The form of calls with the mark that the template writes between an answer and a call that needs no mark."""
    made = form.call
    if made.opening or made.kind != "named":
        return made
    behind = show([ASKED, replace(ANSWERED, tool_calls=(call,))], form, False).partition(ANSWERED.content)[2]
    later = behind.partition(made.sample)[0].strip() if made.sample in behind else ""
    if not later or any(token in later for token in tokens):
        return made
    return replace(made, later=later, name=made.name.replace(AT_START, rf"(?:{AT_START}|{literal(later)}\s*+)", 1))


def _with_results(show: Show, form: ToolFormat, call: ToolCall) -> ToolFormat:
    """The format with the role in which the template shows results, and whether it shows an answer beside calls."""
    said = Message("assistant", "", tool_calls=(call,))
    result = Message("tool", RESULT, tool_call_id=call.id, tool_name=call.name)
    results: Literal["tool", "user"] = "tool" if RESULT in show([ASKED, said, result], form, True) else "user"
    both = show([ASKED, replace(said, content=ANSWERED.content), result], form, True)
    joined = AGAIN.content not in show([ASKED, said, result, AGAIN], form, True)
    return replace(
        form, results=results, joined=joined, alone=both.count(NAME) <= show([ASKED], form, True).count(NAME)
    )
