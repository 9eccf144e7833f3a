"""Calls that a reply has to make: the grammar of a form takes what the template writes, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.errors import EngineError
from specchat.engine.grammar.compiler import vocabulary
from specchat.engine.grammar.source import compiled, rule_body
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Grammar, Limits, Message, Sampling, Tool, ToolCall
from specchat.engine.session import Session
from specchat.engine.tool_calls.forced import forced_calls
from specchat.engine.tool_calls.giving import schema_of
from specchat.engine.tool_calls.parsing import read_calls
from specchat.engine.tool_calls.rules import Rules
from specchat.engine.tool_calls.tagged import tagged_argument
from tests.engine.test_chat_formats import name
from tests.engine.test_tool_calls import CALLING, KINDS, made, written
from tests.engine.test_tool_loop import request, session

__all__ = ["session"]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "depth": {"type": "integer"}, "kind": {"$ref": "#/$defs/kind"}},
    "required": ["path", "depth"],
    "$defs": {"kind": {"type": "string", "enum": ["a", "b"]}},
}
TOOLS = (Tool("list_files", "List files.", json.dumps(SCHEMA)), Tool("now", "Tell the time."))
LIST = ToolCall("abcdefgh1", "list_files", '{"path": "a/<b>.txt", "depth": 2}')
PERSON = Grammar(
    "json_schema",
    json.dumps({"type": "object", "properties": {"born": {"enum": [1879, 1906]}}, "additionalProperties": False}),
)
SPACED = {"CohereForAI-c4ai-command-r-plus-tool_use", "meetkai-functionary-medium-v3.2"}
"""Templates that write calls over several lines, or before which the prompt stops within a mark."""


@pytest.mark.rotated(4)
@pytest.mark.parametrize("answer", ["", rule_body(PERSON)], ids=["calls", "or an answer"])
@pytest.mark.parametrize("file", [file for file in CALLING if file.stem not in SPACED], ids=name)
def test_the_grammar_takes_the_call_that_the_template_writes(file: Path, answer: str) -> None:
    known = made(file)
    form = known.format.tools
    assert form is not None
    marks = {text: token for token, text in {**known.reply_marks.calls, **known.reply_marks.tokens}.items()}
    grammar = forced_calls(TOOLS, form.call, marks, answer)
    assert grammar
    text = known.backend.decode(written(file, Message("assistant", "", tool_calls=(LIST,))), skip_special_tokens=False)
    whole = form.call.kind == "channel"
    call = text if whole else text[text.index(form.call.opening or "{") :]
    ids = known.backend.encode(call, add_special_tokens=False).ids
    end = next(number for number, token in enumerate(ids) if token in known.eos)
    tokens = vocabulary(known, known.eos)
    matcher = compiled(Grammar("lark", grammar), tokens)
    taken = matcher.try_consume_tokens(ids[:end])
    assert not known.backend.decode(ids[taken:end], skip_special_tokens=False).strip()
    assert matcher.is_accepting()
    other = compiled(Grammar("lark", forced_calls(TOOLS[1:], form.call, marks, answer)), tokens)
    other.try_consume_tokens(ids[:end])
    assert not other.is_accepting()


def calls(session: Session, **changes: Any) -> Finished:
    last = list(session.generate(request(**{"limits": Limits(80), **changes})))[-1]
    assert isinstance(last, Finished)
    return last


ZONE = {"type": "object", "properties": {"zone": {"enum": ["utc", "cet"]}}, "required": ["zone"]}
CHOSEN = (Tool("wait", "Wait."), Tool("now", "Tell the time.", json.dumps(ZONE)))


@pytest.mark.parametrize("seed", range(6))
def test_a_reply_calls_where_it_has_to(session: Session, seed: int) -> None:
    sampling = Sampling(seed, temperature=2.0)
    for choice in ("required", "now"):
        reply = calls(session, tools=CHOSEN, tool_choice=choice, sampling=sampling)
        (call,) = reply.tool_calls
        assert (reply.reason, reply.text) == ("stop", "")
        assert (call.name, json.loads(call.arguments)) in [
            ("now", {"zone": "utc"}),
            ("now", {"zone": "cet"}),
            *([("wait", {})] if choice == "required" else []),
        ]


def test_a_choice_that_cannot_be_held_to_is_refused(session: Session) -> None:
    with pytest.raises(EngineError, match="no tool 'other'"):
        calls(session, tool_choice="other")
    known = session.tokenizer.format.tools
    assert known is not None
    assert forced_calls(CHOSEN, replace(known.call, kind="channel"), {}) == ""


ANSWERS = (
    PERSON,
    Grammar("json_object"),
    Grammar("regex", "[a/]+"),
    Grammar("lark", 'start: name "!"\nname: "Ann" | "Bo"'),
)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda grammar: grammar.kind)
def test_beside_tools_a_reply_is_a_call_or_the_answer(session: Session, answer: Grammar) -> None:
    called = []
    for seed in range(12):
        reply = calls(session, tools=CHOSEN, grammar=answer, sampling=Sampling(seed, temperature=3.0))
        called.append(bool(reply.tool_calls))
        matcher = compiled(answer, vocabulary(session.tokenizer, session.eos))
        ids = session.tokenizer.encode(reply.text)
        if reply.tool_calls:
            assert (reply.text, reply.tool_calls[0].name in ("now", "wait")) == ("", True)
        else:
            assert matcher.try_consume_tokens(ids) == len(ids)
            assert matcher.is_accepting() or reply.reason == "length"
    assert set(called) == {True, False}
    held = calls(session, tools=CHOSEN, tool_choice="required", grammar=answer)
    assert len(held.tool_calls) == 1


@pytest.mark.parametrize("file", [file for file in CALLING if file.stem not in SPACED], ids=name)
def test_every_form_has_a_grammar_of_a_call_or_an_answer(file: Path) -> None:
    known = made(file)
    assert known.format.tools is not None
    form, marks = known.format.tools.call, {**known.reply_marks.calls, **known.reply_marks.tokens}
    text = forced_calls(TOOLS, form, {text: token for token, text in marks.items()}, rule_body(PERSON))
    final = "<|channel|>final<|message|>" if form.kind == "channel" else ""
    for said, fits in ((final + '{"born": 1906}', True), (final + '{"born": 7}', False), (final + "Ann", False)):
        matcher = compiled(Grammar("lark", text), vocabulary(known, known.eos))
        ids = known.backend.encode(said, add_special_tokens=False).ids
        assert (matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()) == fits, said


DEEP = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "kind": {"$ref": "#/$defs/kind"},
        "deep": {"type": "array", "items": {
            "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "number"}}, "required": ["a"]}},
        "free": {},
        "any": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
        "again": {"$ref": "#/$defs/again"},
        "depth": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
    },
    "required": ["path", "depth"],
    "$defs": {
        "kind": {"enum": ["a", "it's \"b\"", 3, True]},
        "again": {"type": "object", "properties": {"next": {"$ref": "#/$defs/again"}}},
    },
}  # fmt: skip
FITTING: list[dict[str, Any]] = [
    {"path": "it's \"x\"", "depth": -3},
    {"path": "", "depth": "all", "kind": "it's \"b\"", "deep": [{"a": True, "b": 1.5}, {"a": False}], "free": [1, {}]},
    {"path": "a", "depth": 2, "any": {"x": [], "y": {"z": True}}, "again": {"next": {"next": {}}}, "kind": 3},
]  # fmt: skip
UNFITTING: list[dict[str, Any]] = [
    {"path": "x"},
    {"path": 1, "depth": 2},
    {"path": "x", "depth": 2, "kind": "c"},
    {"path": "x", "depth": 2, "other": 1},
    {"path": "x", "depth": 2, "deep": [{"b": 1}]},
    {"path": "x", "depth": 1.5},
]


def untaken(file: Path, schema: dict[str, Any], arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The arguments of which the grammar does not take the call that the template writes."""
    known = made(file)
    assert known.format.tools is not None
    form = known.format.tools.call
    marks = {text: token for token, text in known.reply_marks.calls.items()}
    tool = Tool("list_files", "", json.dumps(schema))
    grammar, tokens = forced_calls((tool,), form, marks), vocabulary(known, known.eos)

    def taken(arguments: dict[str, Any]) -> bool:
        in_order = {name: arguments[name] for name in schema["properties"] if name in arguments} | arguments
        call = ToolCall("abcdefgh1", "list_files", json.dumps(in_order))
        text = known.backend.decode(
            written(file, Message("assistant", "", tool_calls=(call,))), skip_special_tokens=False
        )
        text = text[text.index(form.opening) : text.index(form.closing) + len(form.closing)]
        ids = known.backend.encode(text, add_special_tokens=False).ids
        matcher = compiled(Grammar("lark", grammar), tokens)
        fits = bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())
        if fits and form.kind == "tagged":
            (read,) = read_calls(text.removeprefix(form.opening), form, {"list_files": schema_of(tool)})
            assert json.loads(read.arguments) == in_order
        return fits

    return [one for one in arguments if not taken(one)]


@pytest.mark.parametrize("stem", ["LFM2-8B-A1B", "google-gemma-4-31B-it"])
def test_arguments_in_other_notations_are_held_to_their_schema(stem: str) -> None:
    file = next((file for file in CALLING if file.stem == stem), None)
    if file is None:
        pytest.skip("the folder with published templates is not beside this checkout")
    assert untaken(file, DEEP, FITTING) == []
    assert untaken(file, DEEP, UNFITTING) == UNFITTING


LIMITED = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "maxLength": 3},
        "word": {"anyOf": [{"type": "string", "pattern": "^z{2}$|[/|]"}, {"type": "null"}]},
        "long": {"allOf": [{"$ref": "#/$defs/text"}, {"minLength": 4}, {"pattern": "b"}]},
        "level": {"enum": ["1", "", "true"]},
        "either": {"oneOf": [{"const": "auto"}, {"type": "integer"}]},
        "more": {"$ref": "#/properties/code"},
        "free": {"$ref": "#/$defs/text"},
    },
    "required": ["code"],
    "$defs": {"text": {"type": "string", "pattern": ""}},
}
LIMITED_FITTING: list[dict[str, Any]] = [
    {"code": "zzz"},
    {"code": "", "word": "zz", "long": 'ab/\n"c', "level": "1", "either": "auto", "free": "12"},
    {"code": "a\nb", "word": "xx/yy", "level": "true", "either": 5, "more": "1"},
    {"code": "5", "word": "a|", "level": ""},
]
LIMITED_UNFITTING: list[dict[str, Any]] = [
    {"code": "zzzz"},
    {"code": "z", "word": "zzz"},
    {"code": "z", "word": "z"},
    {"code": "z", "long": "abc"},
    {"code": "z", "long": "acccc"},
    {"code": "z", "level": "3"},
    {"code": "z", "either": "other"},
    {"code": "z", "more": "zzzz"},
    {"word": "zz"},
]


@pytest.mark.parametrize("file", [file for file in CALLING if KINDS[file.stem] == "tagged"], ids=name)
def test_texts_between_tags_are_held_to_their_limits(file: Path) -> None:
    assert untaken(file, LIMITED, LIMITED_FITTING) == []
    assert untaken(file, LIMITED, LIMITED_UNFITTING) == LIMITED_UNFITTING


def test_a_text_that_has_to_be_long_does_not_hold_its_end(session: Session) -> None:
    """The reader ends it there, whatever its length has to be."""
    tokens, rules = vocabulary(session.tokenizer, session.tokenizer.eos), Rules({})
    start = tagged_argument(("", ""), "\n</p>\n", {"type": "string", "minLength": 9}, {}, rules)
    grammar = compiled(Grammar("lark", rules.text(start)), tokens)
    for text, fits in (("x\n</p>\n</p>\n", False), ("x\n</q>\n</q>\n</p>\n", True)):
        ids = session.tokenizer.backend.encode(text, add_special_tokens=False).ids
        matcher = grammar.deep_copy()
        assert (matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()) is fits
