"""Arguments of calls as they are written: parts that make the whole, in every form that has them as an object."""

import json
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.engine.protocol.options import Message
from specchat.engine.tool_calls.form import CallForm
from specchat.engine.tool_calls.reader import CallReader
from tests.engine.test_chat_formats import name
from tests.engine.test_tool_calls import CALLING, KINDS, LIST, NOW, ONE_CALL, TOOLS, made, reading, written

HERMES = CallForm("object", "<tool_call>", "</tool_call>")
FOLLOWED = [file for file in CALLING if KINDS[file.stem] in ("object", "named", "channel")]


def told(form: CallForm, *parts: str) -> tuple[CallReader, list[tuple[str, str]], str]:
    """What a reader makes of a reply in parts: itself, names and arguments by part, and the answer."""
    reader, deltas, answer = CallReader(form, TOOLS, map(str, count()), frozenset()), [], ""
    for part in parts:
        answer += reader.feed(part)
        deltas += reader.take().deltas
    answer += reader.finish(complete=True)
    deltas += reader.take().deltas
    return reader, [(delta.name, delta.arguments) for delta in deltas], answer


@pytest.mark.parametrize("file", FOLLOWED, ids=name)
def test_parts_of_arguments_make_the_arguments(file: Path) -> None:
    calls = (LIST,) if file.stem in ONE_CALL else (LIST, NOW, LIST)
    spans, reader = reading(file)
    parts: dict[str, list[str]] = defaultdict(list)
    early = 0
    for token in written(file, Message("assistant", "", tool_calls=calls)):
        if token in made(file).eos:
            break
        spans.push(token)
        progress = spans.called()
        for delta in progress.deltas:
            parts[delta.id].append(delta.arguments)
        early += bool(progress.deltas) and not reader.calls
    spans.flush(complete=True)
    for delta in spans.called().deltas:
        parts[delta.id].append(delta.arguments)
    assert len(reader.calls) == len(calls)
    form = made(file).format.tools
    assert form is not None
    if (form.call.opening or form.call.kind == "channel") and not form.call.keys.id:
        by_id = {call.id: call.arguments for call in reader.calls}
        assert {id: "".join(texts) for id, texts in parts.items()} == by_id
        assert early > 5
    else:
        assert not parts


def test_a_name_and_arguments_come_as_they_are_written() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": "x\ny", "b": [{"c": "}"}, 1.5]}}</tool_call>'
    reader, deltas, _ = told(HERMES, *text)
    assert "".join(part for _, part in deltas) == '{"a": "x\\ny", "b": [{"c": "}"}, 1.5]}' == reader.calls[0].arguments
    assert len(deltas) > 20
    assert {name for name, _ in deltas} == {"now"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "other", "arguments": {}}', ""),
        ('{"arguments": {"a": 1}, "name": "now"}', ""),
        ('{"name": "now", "arguments": "{}"}', ""),
        (
            '{"type": "function", "function": {"name": "now", "parameters": {"a": {"name": "x"}}}}',
            '{"a": {"name": "x"}}',
        ),
        ('[{"name": "now", "arguments": {"a": 1}}, {"name": "list_files", "arguments": {}}]', '{"a": 1}{}'),
        ('{"na\\u006de": "n\\u006fw", "arguments": {"a": "\\u00e7"}}', '{"a": "\\u00e7"}'),
    ],
)
def test_forms_that_models_write_instead(text: str, expected: str) -> None:
    reader, deltas, answer = told(HERMES, *f"<tool_call>{text}</tool_call>")
    assert "".join(part for _, part in deltas) == expected
    assert answer == ""
    if expected:
        assert "".join(call.arguments for call in reader.calls) == expected


def test_a_mistake_around_arguments_does_no_harm() -> None:
    reader, deltas, answer = told(HERMES, *'<tool_call>{"name": "now", "arguments": {"a": 1}</tool_call>')
    assert ([call.arguments for call in reader.calls], reader.unreadable, answer) == (['{"a": 1}'], 0, "")
    assert "".join(part for _, part in deltas) == '{"a": 1}'


def test_arguments_that_break_off_are_no_call() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": nothing}}</tool_call>'
    reader, _, answer = told(HERMES, *text)
    assert (reader.calls, reader.unreadable, answer) == ([], 1, text)


@given(st.dictionaries(st.text(max_size=5), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
), max_size=4), st.integers(1, 7))  # fmt: skip
@settings(max_examples=200)
def test_any_arguments_in_parts_of_any_size(arguments: dict[str, Any], size: int) -> None:
    text = f"<tool_call>\n{json.dumps({'name': 'now', 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    reader, deltas, _ = told(HERMES, *(text[at : at + size] for at in range(0, len(text), size)))
    assert [json.loads(call.arguments) for call in reader.calls] == [arguments]
    assert "".join(part for _, part in deltas) == reader.calls[0].arguments
