"""Calls of tools and their results in saved chats: they come back, on every branch, and go back to the model."""

import json

from specchat.chat.json_format import as_json, from_json
from specchat.chat.rows import conversation
from specchat.chat.store import Store
from specchat.chat.tool_results import ToolResult, unanswered
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Finished, Piece, Started, Step
from specchat.engine.protocol.options import Message, Sampling, Speculation, ToolCall, Written
from tests.fake_steps import stats, steps

from .conftest import save

LOOK = ToolCall("call_1", "look", '{"path": "a.txt"}')
AGAIN = ToolCall("call_2", "look", '{"path": "b.txt"}')
RESULTS = (ToolResult("call_1", "look", "a\n", seconds=0.5), ToolResult("call_2", "look", "no such file", failed=True))

CALLED = Written("I look.", tool_calls=(LOOK, AGAIN))


def returned(chat: Conversation, results: tuple[ToolResult, ...]) -> Turn:
    """The results of the last reply's calls, as a turn at the end of the path."""
    return chat.add(Turn("", parent=chat.turns[-1].reply, results=results))


def answered(chat: Conversation, written: Written) -> Reply:
    reply = Reply(1, "demo", Sampling(), Speculation())
    last = chat.last
    assert last is not None
    chat.answer(last, reply)
    reply.started(Started(1, 3, 0, 0, Speculation()))
    made = steps(written)
    for step in made:
        reply.step(step)
    reply.finished(Finished.of(1, "stop", written, (), stats(made, 3, 0)))
    return reply


def looked() -> Conversation:
    """A chat in which a reply called twice."""
    chat = Conversation()
    chat.ask("What is in there?")
    answered(chat, CALLED)
    returned(chat, RESULTS)
    answered(chat, Written("An a."))
    return chat


MESSAGES = (
    Message("user", "What is in there?"),
    Message("assistant", "I look.", tool_calls=(LOOK, AGAIN)),
    Message("tool", "a\n", tool_call_id="call_1", tool_name="look"),
    Message("tool", "no such file", tool_call_id="call_2", tool_name="look"),
    Message("assistant", "An a."),
    Message("user", "And now?"),
)


def test_the_next_prompt_has_calls_and_results_in_order() -> None:
    assert looked().messages(prompt="And now?") == MESSAGES


def test_a_reply_of_calls_alone_is_sent_back() -> None:
    chat = Conversation()
    chat.ask("What is in there?")
    reply = answered(chat, Written(tool_calls=(LOOK,)))
    turn = returned(chat, RESULTS[:1])
    assert (reply.text, reply.rewritten, chat.turns[0].answered) == ("", False, True)
    assert chat.messages(turn)[1:] == (Message("assistant", "", tool_calls=(LOOK,)), RESULTS[0].message)


def test_they_come_back_from_the_store_and_from_an_export(store: Store) -> None:
    chat = looked()
    save(store, chat)
    loaded = store.load(chat.key)[0]
    assert loaded.messages(prompt="And now?") == MESSAGES
    assert loaded.turns[1].results == RESULTS
    first = loaded.turns[0].reply
    assert first is not None
    assert [step.call_pieces[:1] for step in first.steps][-2:] == [step.call_pieces for step in steps(CALLED)][-2:]
    whole = store.whole(chat.key)
    (again,) = from_json(json.loads("".join(as_json([whole]))), "exported")
    assert (
        conversation(again.row, again.messages, lambda *_: None, lambda _: None).messages(prompt="And now?") == MESSAGES
    )


def test_another_reply_to_results_is_a_branch() -> None:
    chat = looked()
    answered(chat, Written("Two files."))
    assert chat.messages(prompt="And now?") == (*MESSAGES[:4], Message("assistant", "Two files."), MESSAGES[5])
    assert len(chat.turns[1].replies) == 2


def test_a_call_adds_no_text_while_it_is_written() -> None:
    chat = Conversation()
    reply = Reply(1, "demo", Sampling(), Speculation())
    chat.answer(chat.ask("Look."), reply)
    piece = Piece("<tool_call>look", "plain")
    reply.step(Step(1, (), 0, 0, 0, 3, 1, 8, 1, 10, "plain", call_pieces=(piece,)))
    assert (reply.text, reply.tool_calls) == ("", ())
    reply.step(Step(1, (), 0, 0, 0, 3, 1, 8, 1, 13, "plain", tool_calls=(LOOK,)))
    assert (reply.text, reply.tool_calls) == ("", (LOOK,))


def test_calls_without_a_result_are_told() -> None:
    assert unanswered((LOOK, AGAIN), RESULTS[:1]) == [AGAIN]
