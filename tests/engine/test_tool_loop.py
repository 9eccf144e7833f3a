"""A model that calls a tool, from request to events, and the prompt that brings it the result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from specchat.engine.errors import EngineError
from specchat.engine.loading import load
from specchat.engine.protocol.events import Event, Finished, Started, Step
from specchat.engine.protocol.options import CutCalls, Limits, Message, Tool
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.session import Session
from tests.engine import tiny
from tests.engine.scripted import scripted
from tests.engine.test_tool_calls import HERMES
from tests.engine.tiny import on_cpu

ASKED = Message("user", "What time is it?")
NOW = Tool("now", "Tell the time.", '{"type": "object", "properties": {"zone": {"type": "string"}}}')
CALL = ('\n{"name": "now", "arguments": ', '{"zone": "utc"}', "}\n")
SCRIPT = ("I look.", "\n", "<tool_call>", *CALL, "</tool_call>", "<|end|>", "Now")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A model that says a sentence and calls, whatever it is asked."""
    backend = tiny.tokenizer([*tiny.SPECIAL, "<|tool|>"])
    texts = ["<tool_call>", "</tool_call>", "I look.", *CALL, "Now"]
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in texts])
    ids = backend.get_vocab()
    line = backend.encode("\n", add_special_tokens=False).ids
    script = [token for text in SCRIPT for token in (line if text == "\n" else [ids[text]])]
    folder = scripted(tmp_path_factory.mktemp("calling") / "model", backend, script, {}, HERMES)
    return load(PairSpec("m", "M", on_cpu(folder), context=4096), lambda _: None)


def request(**changes: Any) -> Generate:
    return replace(Generate(1, (ASKED,), limits=Limits(20), tools=(NOW,)), **changes)


def told(events: list[Event]) -> Finished:
    """The end of a reply, whose steps said the same."""
    last = events[-1]
    assert isinstance(last, Finished)
    steps = [event for event in events if isinstance(event, Step)]
    assert "".join(piece.text for step in steps for piece in step.pieces) == last.text
    assert tuple(call for step in steps for call in step.tool_calls) == last.tool_calls
    return last


def test_a_reply_says_what_it_calls(session: Session) -> None:
    events = list(session.generate(request()))
    reply = told(events)
    (call,) = reply.tool_calls
    assert (call.name, call.arguments, len(call.id)) == ("now", '{"zone": "utc"}', 9)
    assert (reply.reason, reply.text, reply.unreadable_calls) == ("stop", "I look.", 0)
    raw = "".join(piece.text for event in events if isinstance(event, Step) for piece in event.call_pieces)
    assert raw == "".join(("<tool_call>", *CALL, "</tool_call>"))
    assert told(list(session.generate(request()))).tool_calls == reply.tool_calls


def test_the_next_prompt_is_what_was_read_and_written_and_the_result(session: Session) -> None:
    """Nothing of it is read again, save the token that ended the reply."""
    events = list(session.generate(request(cold=True)))
    first, reply = events[0], told(events)
    assert isinstance(first, Started)
    result = Message("tool", "noon", tool_call_id=reply.tool_calls[0].id, tool_name="now")
    chat = (ASKED, reply.written.message, result)
    started = next(iter(session.generate(request(messages=chat))))
    assert isinstance(started, Started)
    assert started.reused >= first.prompt_tokens + len(reply.token_ids) - 1
    counted = session.count(Count(2, chat, tools=(NOW,)))
    assert counted.tokens == started.prompt_tokens
    assert session.count(Count(2, chat)).tokens < counted.tokens


def test_a_stop_string_that_ended_the_reply_is_told(session: Session) -> None:
    stops = [told(list(session.generate(request(limits=Limits(20, (s,)))))).stopped_by for s in ("look", "never")]
    assert stops == ["look", ""]


def test_calls_in_another_turn_have_other_names(session: Session) -> None:
    first = told(list(session.generate(request()))).tool_calls
    again = told(list(session.generate(request(messages=(ASKED, Message("assistant", "Noon."), ASKED))))).tool_calls
    assert first[0].id != again[0].id


@pytest.mark.parametrize("length", range(1, len(SCRIPT) - 2))
def test_a_reply_that_was_cut_calls_once_it_goes_on(session: Session, length: int) -> None:
    whole = told(list(session.generate(request())))
    events = list(session.generate(request(limits=Limits(length))))
    cut = told(events)
    raw = "".join(piece.text for event in events if isinstance(event, Step) for piece in event.call_pieces)
    assert (cut.reason, cut.cut_calls.text.lstrip()) == ("length", raw)
    assert whole.text.startswith(cut.text)
    rest = list(session.generate(request(begun=cut.written)))[-1]
    assert isinstance(rest, Finished)
    assert (rest.text, len(rest.tool_calls), rest.cut_calls) == (whole.text, 1, CutCalls())
    assert (*cut.token_ids, *rest.token_ids) == whole.token_ids


def test_without_tools_or_where_none_may_be_called_the_text_is_text(session: Session) -> None:
    for changes in ({"tools": ()}, {"tool_choice": "none"}):
        reply = told(list(session.generate(request(**changes))))
        assert (reply.tool_calls, "<tool_call>" in reply.text) == ((), True)


def test_a_template_without_tools_is_refused(tmp_path: Path) -> None:
    backend = tiny.tokenizer(tiny.SPECIAL)
    folder = scripted(tmp_path / "model", backend, [65, 66], {}, tiny.TEMPLATE)
    plain = load(PairSpec("m", "M", on_cpu(folder), context=256), lambda _: None)
    with pytest.raises(EngineError, match="shows no tools"):
        list(plain.generate(request()))
