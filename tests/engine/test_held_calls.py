"""Strict tools that a reply may call: free text, then arguments that fit, in every strategy the tokens of plain."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.engine.errors import EngineError
from specchat.engine.grammar.calls import CallConstraint
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Grammar, Limits, Sampling, Speculation, Tool
from specchat.engine.session import Session
from specchat.engine.text.spans import ReplySpans
from specchat.engine.text.text_stream import TextStream
from tests.engine.test_forced_calls import ZONE
from tests.engine.test_grammar_answer import try_every_token
from tests.engine.test_tool_loop import request, session

__all__ = ["session"]
STRICT = (Tool("wait", "Wait.", strict=True), Tool("now", "Tell the time.", json.dumps(ZONE), strict=True))
SCHEMAS: dict[str, Any] = {"wait": {"type": "object", "additionalProperties": False}, "now": ZONE}


def last(session: Session, **changes: Any) -> Finished:
    found = list(session.generate(request(**{"limits": Limits(120), **changes})))[-1]
    assert isinstance(found, Finished)
    return found


def test_a_call_that_does_not_fit_becomes_one_that_does(session: Session) -> None:
    """The scripted model calls with a zone as an object, which the schema does not have."""
    wrong = (Tool("now", "Tell the time.", json.dumps({**ZONE, "properties": {"zone": {"enum": ["cet"]}}})),)
    free = last(session, tools=wrong).tool_calls
    assert json.loads(free[0].arguments) == {"zone": "utc"}
    held = last(session, tools=tuple(replace(tool, strict=True) for tool in wrong))
    assert [json.loads(call.arguments) for call in held.tool_calls[:1]] == [{"zone": "cet"}]
    assert held.text.startswith("I look.")


@pytest.mark.parametrize("seed", range(4))
def test_calls_fit_and_are_those_of_plain(session: Session, seed: int) -> None:
    sampling = Sampling(seed, temperature=1.5)
    plain = last(session, tools=STRICT, sampling=sampling)
    for strategy in ("lookup", "auto"):
        drafted = last(session, tools=STRICT, sampling=sampling, speculation=Speculation.of(strategy))
        assert drafted.token_ids == plain.token_ids
    for call in plain.tool_calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert plain.unreadable_calls == 0


def test_no_call_is_held_without_a_strict_tool_or_without_a_choice(session: Session) -> None:
    prompts = session._prompts
    assert prompts.held(request()) is None
    free = Grammar("json_object")
    held = prompts.held(request(tools=STRICT, tool_choice="none", grammar=free))
    assert held is not None
    assert (held.grammar, held.opener) == (free, None)
    assert prompts.held(request(tools=STRICT, tool_choice="none")) is None


def test_a_schema_that_cannot_be_held_to_is_told_as_one_of_a_tool(session: Session) -> None:
    wrong = Tool("now", "", '{"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}', strict=True)
    with pytest.raises(EngineError, match=r"The schemas of the tools cannot be held to\. Mend them"):
        last(session, tools=(wrong,))
    assert last(session, tools=(replace(wrong, strict=False),)).tool_calls


def constraint(session: Session) -> CallConstraint:
    held = session._prompts.held(request(tools=STRICT))
    assert held is not None
    known = session.tokenizer
    spans = ReplySpans(TextStream(known), known.reply_marks, known.format)
    made = session._grammars.constraint(request(), held, spans, session.eos)
    assert isinstance(made, CallConstraint)
    return made


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 30))
@settings(max_examples=60)
def test_going_back_leaves_nothing_behind(session: Session, choices: list[int], back: int) -> None:
    """A walk through allowed tokens; its undoing gives the masks of a fresh walk."""
    vocab, opener = session.tokenizer.rows, session.tokenizer.backend.token_to_id("<tool_call>")
    held, fresh, walked = constraint(session), constraint(session), list[int]()
    for choice in choices:
        words = held.allowed(vocab)
        free = (
            np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little", count=vocab))
            if words is not None
            else []
        )
        token = int(free[choice % len(free)]) if len(free) else (opener if choice % 2 else choice)
        held.push(token)
        walked.append(token)
    for _ in range(min(back, len(walked))):
        held.pop()
    kept = walked[: len(walked) - min(back, len(walked))]
    assert fresh.prefix(kept) == len(kept) or set(kept) & session.eos
    for token in kept:
        fresh.push(token)
    one, other = held.allowed(vocab), fresh.allowed(vocab)
    assert (one is None) is (other is None)
    assert one is None or other is None or (one == other).all()
    assert held.forced(8) == fresh.forced(8)


def test_nothing_that_a_rejected_token_did_lasts(session: Session) -> None:
    call = 'I look.<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>'
    tokens = session.tokenizer.backend.encode(call, add_special_tokens=False).ids
    try_every_token(session.tokenizer, lambda: constraint(session), [*tokens, *tokens, min(session.eos)], 0)


@pytest.mark.parametrize("back", [1, 5])
def test_going_back_from_a_second_call_into_the_first(session: Session, back: int) -> None:
    call = '<tool_call>\n{"name": "wait", "arguments": {}}\n</tool_call>'
    tokens = session.tokenizer.backend.encode(call, add_special_tokens=False).ids
    held, fresh = constraint(session), constraint(session)
    for token in tokens * 2:
        held.push(token)
    assert held.allowed(session.tokenizer.rows) is None
    for _ in range(len(tokens) + back):
        held.pop()
    for token in tokens[:-back]:
        fresh.push(token)
    one, other = held.allowed(session.tokenizer.rows), fresh.allowed(session.tokenizer.rows)
    assert one is not None
    assert (one == other).all()
